// Random layers of convolutions by real ranks: halos, and the kernels that run around them. An oracle in
// plain loops and doubles, which knows nothing of shards, has the right values.
#include "tests/api/client/fields/layer.hpp"

#include <map>
#include <string>
#include <vector>

namespace {

using muster::test::Alone;
using muster::test::Draw;
using muster::test::Items;
using muster::test::Layer;
using muster::test::Member;
using muster::test::Numbers;
using muster::test::product;
using muster::test::run_epochs;
using muster::test::Window;

class Convolved : public muster::test::Fields<Layer> {};

Layer drawn_layer(std::uint64_t seed) {
  Draw draw(seed);
  Layer l;
  l.numbers = static_cast<Numbers>(draw.among(0, 2));
  l.dims = static_cast<std::size_t>(draw.among(1, 3));
  l.groups = draw.one_in(3) ? draw.among(2, 3) : 1;
  l.channels = l.groups * draw.among(1, l.groups > 1 ? 3 : 9);
  l.outputs = l.groups * draw.among(1, l.groups > 1 ? 3 : 9);
  l.text = fmt::format("seed {}: {} groups, {} channels, {} outputs, numbers {}", seed, l.groups, l.channels,
                       l.outputs, static_cast<int>(l.numbers));
  const std::int64_t longest = l.dims == 1 ? 40 : l.dims == 2 ? 12 : 6;
  Items cuts(l.dims + 1, 1);
  std::map<std::size_t, Items> lengths;
  std::vector<Items> results(l.dims + 1);
  for (std::size_t d = 0; d < l.dims; ++d) {
    l.items.push_back(draw.among(1, longest));
    Window window;
    do window = draw.window(l.items[d]);
    while (window.kind != Window::Kind::kConvolution);
    l.windows.push_back(window);
    l.text += fmt::format("\n  dim {}: {} items; {}", d, l.items[d], window.text());
    if (draw.one_in(4)) continue;
    const std::int64_t most = l.dims == 1 ? 8 : l.dims == 2 ? 4 : 2;
    cuts[d] = std::min(draw.among(2, most), muster::test::kFieldRanks / l.ranks);
    l.ranks *= cuts[d];
    if (cuts[d] == 1) continue;
    if (!draw.one_in(4)) lengths[d] = draw.lengths(l.items[d], cuts[d]);
    if (draw.one_in(3)) results[d] = draw.lengths(window.results(l.items[d]), cuts[d]);
    l.text += fmt::format("; {} ranks [{}] [{}]", cuts[d],
                          lengths.contains(d) ? fmt::format("{}", fmt::join(lengths[d], " ")) : "",
                          fmt::join(results[d], " "));
  }
  l.cuts = cuts;
  l.lengths = lengths;
  make(draw, l, results);
  return l;
}

struct Fixed {
  const char* name;
  Items items;
  std::int64_t channels, outputs, kernel, stride, pad;
  Items cuts;     // ranks along each dim, and 1 for channels
  Items lengths;  // of rows; none: balanced
};
const Fixed kFixed[] = {
    {"even", {24, 20}, 5, 7, 3, 1, 1, {4, 1, 1}, {}},
    {"uneven and strided", {33, 20}, 4, 6, 3, 2, 1, {4, 1, 1}, {9, 12, 7, 5}},
    {"17 and 16 rows", {33, 16}, 16, 16, 3, 2, 1, {2, 1, 1}, {17, 16}},
    {"narrower than its halo", {20, 12}, 3, 8, 7, 1, 3, {4, 1, 1}, {2, 1, 2, 15}},
    {"an empty shard", {20, 12}, 3, 8, 3, 1, 1, {4, 1, 1}, {8, 0, 7, 5}},
    {"both dims", {18, 22}, 6, 4, 3, 1, 1, {2, 2, 1}, {}},
    {"windows over both ends", {2, 3, 6}, 6, 6, 5, 3, 4, {1, 1, 2, 1}, {}},
};
Layer layer_of(const Fixed& c, Numbers numbers, std::uint64_t seed) {
  Draw draw(seed);
  Layer l;
  l.text = c.name;
  l.numbers = numbers;
  l.dims = c.items.size();
  l.items = c.items;
  l.channels = c.channels;
  l.outputs = c.outputs;
  l.windows.assign(l.dims, Window{Window::Kind::kConvolution, c.kernel, c.stride, 1, c.pad, c.pad});
  l.cuts = c.cuts;
  l.ranks = product(c.cuts);
  if (!c.lengths.empty()) l.lengths[0] = c.lengths;
  make(draw, l, std::vector<Items>(l.dims + 1));
  return l;
}

// Goal:   random convolutions on real ranks, forward and backward: small integers give the oracle's bits;
//         floats give one rank's bits, forward and by items, and the oracle's values within 1e-5; BF16 is at
//         most twice as far from the oracle as one rank's.
TEST_F(Convolved, AreWhatOneRankComputes) {
  const std::uint64_t cases = muster::test::property_cases(60);
  with_ranks(muster::test::kFieldRanks, [&](Member& member) {
    bool all_well = true;
    for (std::uint64_t seed = 0; seed < cases && all_well; ++seed) {
      all_well = share(
          member, [&] { return drawn_layer(seed + 2'000'000); },
          [&](const Layer& l) { run_epochs(member, l, Alone::kToo, seed); });
    }
    meet_and_leave(member);
  });
}

// Goal:   the same for fields with more channels, with shards that are uneven, empty, or narrower than their
//         halo, and for an operator that a peer gets wrong: stride 2 on 17 and 16 rows.
TEST_F(Convolved, AreWhatOneRankComputesForShapesOfModels) {
  with_ranks(4, [&](Member& member) {
    std::uint64_t seed = 0;
    for (const Fixed& c : kFixed)
      for (const Numbers numbers : {Numbers::kWhole, Numbers::kFloats, Numbers::kHalves}) {
        ++seed;
        share(
            member, [&] { return layer_of(c, numbers, seed); },
            [&](const Layer& l) { run_epochs(member, l, Alone::kToo, seed); });
      }
    meet_and_leave(member);
  });
}

}  // namespace
