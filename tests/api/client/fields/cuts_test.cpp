// Convolutions of fields that are cut in several dims, by the ranks of one axis of a mesh, or of which the
// samples are cut too; and the matrix of kernels, strides, pads, dilations and groups.
#include "tests/api/client/fields/layer.hpp"

#include <algorithm>
#include <array>
#include <map>
#include <random>
#include <set>
#include <string>
#include <vector>

#include <muster/kernels.h>

namespace {

using muster::halo::test::halos_of;
using muster::test::Alone;
using muster::test::Draw;
using muster::test::FieldErrors;
using muster::test::group_of;
using muster::test::Halo;
using muster::test::HaloSet;
using muster::test::Items;
using muster::test::kSame;
using muster::test::Layer;
using muster::test::layer_of;
using muster::test::LayerEpoch;
using muster::test::LayerPart;
using muster::test::LayerWay;
using muster::test::make;
using muster::test::Member;
using muster::test::Numbers;
using muster::test::ok;
using muster::test::product;
using muster::test::run_epochs;
using muster::test::start;
using muster::test::Window;

Window convolution(std::int64_t kernel, std::int64_t stride, std::int64_t dilation, std::int64_t pad) {
  return {Window::Kind::kConvolution, kernel, stride, dilation, pad, pad};
}

// A layer with a window for each dim, and lengths of the shards of each.
Layer layer_of_windows(const char* name, const Items& items, const std::vector<Window>& windows,
                       const std::vector<Items>& lengths, Numbers numbers, std::int64_t channels) {
  Draw draw(21);
  Layer l;
  l.text = name;
  l.numbers = numbers;
  l.dims = items.size();
  l.batched = windows[0].kind == Window::Kind::kEach;
  l.items = items;
  l.channels = l.outputs = channels;
  l.windows = windows;
  for (std::size_t d = 0; d < l.dims; ++d) {
    l.cuts.push_back(static_cast<std::int64_t>(lengths[d].size()));
    if (l.cuts[d] > 1) l.lengths[d] = lengths[d];
  }
  l.cuts.push_back(1);
  l.ranks = product(l.cuts);
  make(draw, l, std::vector<Items>(l.dims + 1));
  return l;
}

class CutFields : public muster::test::Fields<Layer> {};

// Goal:   C2 and C3 of the catalogue: uneven shards in two dims and in three, either way of corners.
TEST_F(CutFields, InSeveralDimsAreWhatOneRankComputes) {
  std::vector<Layer> layers;
  for (const Numbers numbers : {Numbers::kWhole, Numbers::kFloats}) {
    layers.push_back(
        layer_of_windows("C2", {5, 3}, {convolution(5, 1, 1, 2), kSame}, {{4, 1}, {2, 1}}, numbers, 3));
    layers.push_back(
        layer_of_windows("C3", {6, 5, 4}, {kSame, kSame, kSame}, {{4, 2}, {3, 2}, {3, 1}}, numbers, 2));
    layers.push_back(layer_of_windows("strided", {9, 7}, {convolution(3, 2, 1, 1), convolution(4, 3, 1, 2)},
                                      {{5, 4}, {3, 4}}, numbers, 3));
  }
  for (const Halo& halo : halos_of(*layers[1].cut)) EXPECT_EQ(halo.gets.size(), 7U);
  with_ranks(8, [&](Member& member) {
    for (const Layer& l : layers) {
      for (const muster_corners corners : {MUSTER_CORNERS_DIRECT, MUSTER_CORNERS_BY_DIMS})
        for (const muster_halo_gradients how : {MUSTER_HALO_FETCH, MUSTER_HALO_RETURN})
          run_epochs(member, l, Alone::kToo, static_cast<std::uint64_t>(how), {corners, how});
      await_all(member);
    }
    meet_and_leave(member);
  });
}

// Goal:   C1 in floats: the way of corners changes no bit of results and gradients.
TEST_F(CutFields, HaveTheSameBitsEitherWayOfCorners) {
  const Layer l = layer_of("corners", {9, 8}, kSame, {{5, 4}, {3, 5}}, Numbers::kFloats, 3);
  with_ranks(4, [&](Member& member) {
    const auto played = [&](muster_corners corners) {
      LayerPart part(member, l, *l.cut, member.rank, MUSTER_HALO_FETCH, corners);
      HaloSet halos(member, member.group);
      halos.add(part.halo());
      part.fill(l.epochs[0]);
      halos.forward();
      halos.backward();
      expect_right(l.epochs[0], part);
      std::vector<double> all = part.own_results(), back = part.own_gradients();
      all.insert(all.end(), back.begin(), back.end());
      return all;
    };
    EXPECT_EQ(played(MUSTER_CORNERS_DIRECT), played(MUSTER_CORNERS_BY_DIMS));
    meet_and_leave(member);
  });
}

// Goal:   C4: the ranks of one axis of a mesh have a field of their own, along the inner axis and the outer.
TEST_F(CutFields, AlongOneAxisOfAMeshAreApart) {
  const Layer layers[] = {layer_of("first", {9, 4}, kSame, {{5, 4}}, Numbers::kFloats, 31),
                          layer_of("second", {9, 4}, kSame, {{5, 4}}, Numbers::kFloats, 32)};
  EXPECT_NE(layers[0].epochs[0].x, layers[1].epochs[0].x);
  mesh = "dp_shard=2,domain=2";
  with_ranks(4, [&](Member& member) {
    muster_group inner = 0, outer = 0;
    ok(muster_mesh_group(member.session, "domain", &inner));
    ok(muster_mesh_group(member.session, "dp_shard", &outer));
    run_epochs(member, inner, member.rank % 2, layers[member.rank / 2], Alone::kToo, 33);
    run_epochs(member, outer, member.rank / 2, layers[member.rank % 2], Alone::kToo, 34);
    meet_and_leave(member);
  });
}

// Goal:   C5: samples are cut beside rows, unevenly, and no sample meets another one.
TEST_F(CutFields, OfCutSamplesMeetNoOtherSample) {
  const Window each;
  const Layer layers[] = {
      layer_of_windows("C5", {3, 7, 4}, {each, kSame, kSame}, {{2, 1}, {4, 3}, {4}}, Numbers::kWhole, 3),
      layer_of_windows("samples", {5, 6}, {each, kSame}, {{1, 0, 3, 1}, {6}}, Numbers::kFloats, 2)};
  for (const Halo& halo : halos_of(*layers[1].cut)) EXPECT_TRUE(halo.gets.empty());
  with_ranks(4, [&](Member& member) {
    for (const Layer& l : layers)
      for (const muster_halo_gradients how : {MUSTER_HALO_FETCH, MUSTER_HALO_RETURN})
        run_epochs(member, l, Alone::kToo, 35, {MUSTER_CORNERS_DIRECT, how});
    meet_and_leave(member);
  });
}

// Kernel, stride, pad, dilation, groups and dims.
using Choice = std::array<std::int64_t, 6>;
std::vector<Choice> choices() {
  std::vector<Choice> all;
  for (std::int64_t dims = 1; dims <= 3; ++dims)
    for (const std::int64_t kernel : {2, 3, 4, 5, 7})
      for (const std::int64_t stride : {1, 2, 3})
        for (const std::int64_t pad : std::set<std::int64_t>{0, 1, kernel / 2})
          for (const std::int64_t dilation : {1, 2})
            for (const std::int64_t groups : {1, 4}) {
              const Choice choice{kernel, stride, pad, dilation, groups, dims};
              const std::int64_t shortest = dims == 1 ? 23 : dims == 2 ? 13 : 7;
              if (convolution(kernel, stride, dilation, pad).check(shortest).ok()) all.push_back(choice);
            }
  std::shuffle(all.begin(), all.end(), std::mt19937_64(6));
  return all;
}
Layer layer_of_choice(const Choice& choice) {
  const auto [kernel, stride, pad, dilation, groups, dims] = choice;
  const Items items[] = {{23}, {13, 14}, {9, 8, 7}};
  const Items cuts[] = {{4, 1}, {2, 2, 1}, {2, 1, 2, 1}};
  const auto at = static_cast<std::size_t>(dims - 1);
  Draw draw(static_cast<std::uint64_t>(kernel * 100 + stride * 10 + dims));
  Layer l;
  l.text = fmt::format("kernel, stride, pad, dilation, groups, dims: {}", fmt::join(choice, " "));
  l.dims = static_cast<std::size_t>(dims);
  l.items = items[at];
  l.cuts = cuts[at];
  l.ranks = 4;
  l.groups = groups;
  l.channels = l.outputs = 4;
  l.windows.assign(l.dims, convolution(kernel, stride, dilation, pad));
  make(draw, l, std::vector<Items>(l.dims + 1));
  return l;
}

// Goal:   C6: kernels, strides, pads, dilations and groups in one to three dims, each with each. The usual
//         run takes some of them, by chance; MUSTER_PROPERTY_CASES says how many.
TEST_F(CutFields, OfAnyKernelAreWhatOneRankComputes) {
  std::vector<Choice> all = choices();
  EXPECT_GT(all.size(), 400U);
  all.resize(std::min<std::size_t>(all.size(), muster::test::property_cases(120)));
  with_ranks(4, [&](Member& member) {
    for (const Choice& choice : all)
      if (!share(
              member, [&] { return layer_of_choice(choice); },
              [&](const Layer& l) { run_epochs(member, l, Alone::kNo, 36); }))
        break;
    meet_and_leave(member);
  });
}

// Goal:   C8: results in the lengths of a skip connection, to which they are added, element by element.
TEST_F(CutFields, HaveTheLengthsOfTheSkipThatIsAdded) {
  for (const Items& skip : {Items{3, 3, 3}, Items{1, 8, 0}, Items{7, 1, 1}}) {
    Draw draw(37);
    Layer l;
    l.text = fmt::format("lengths {}", fmt::join(skip, " "));
    l.dims = 2;
    l.items = {18, 5};
    l.cuts = {3, 1, 1};
    l.lengths[0] = {7, 6, 5};
    l.ranks = 3;
    l.channels = l.outputs = 3;
    l.windows = {convolution(3, 2, 1, 1), kSame};
    make(draw, l, {skip, {}, {}});
    const std::vector<double> added = values(draw, product(l.results) * l.outputs, Numbers::kWhole);
    with_ranks(3, [&](Member& member) {
      SCOPED_TRACE(l.text);
      run_epochs(member, l, Alone::kToo, 38);
      LayerPart part(member, l, *l.cut, member.rank, MUSTER_HALO_FETCH);
      EXPECT_EQ(part.mine.results.length[0], skip[static_cast<std::size_t>(member.rank)]);
      muster::test::FieldArray other(member, part.mine.results, l.dims, l.outputs, MUSTER_F32);
      const std::int64_t first = part.mine.results.offset[0] * l.results[1] * l.outputs;
      for (std::int64_t i = 0; i < other.count(); ++i)
        other.set(i, added[static_cast<std::size_t>(first + i)]);
      HaloSet halos(member, member.group);
      halos.add(part.halo());
      part.fill(l.epochs[0]);
      halos.forward();
      start(member, muster_axpby(1, other.view, 1, part.y.view));
      for (std::int64_t i = 0; i < part.y.count(); ++i) {
        const auto at = static_cast<std::size_t>(first + i);
        EXPECT_EQ(part.y.get(i), l.epochs[0].y[at] + added[at]);
      }
      ok(muster_buffer_free(member.session, other.view.buffer));
      meet_and_leave(member);
    });
  }
}

// Goal:   C12: three channels of BF16 in rows of five, which are 30 bytes and begin at no even address.
TEST_F(CutFields, OfOddRowsOfHalvesAreAsCloseAsOneRanks) {
  const Layer layers[] = {
      layer_of("C12", {6, 5}, kSame, {{3, 2, 1}}, Numbers::kHalves, 39, 3, 3),
      layer_of("strided", {6, 5}, convolution(3, 2, 1, 1), {{3, 2, 1}}, Numbers::kHalves, 40, 3, 3)};
  with_ranks(3, [&](Member& member) {
    for (const Layer& l : layers) run_epochs(member, l, Alone::kToo, 41);
    meet_and_leave(member);
  });
}

}  // namespace
