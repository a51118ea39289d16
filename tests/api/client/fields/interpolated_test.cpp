// Interpolation of fields that are cut over ranks, held against plain loops in doubles.
#include "tests/api/client/fields/fields.hpp"

#include <map>
#include <numeric>
#include <optional>
#include <string>
#include <utility>

namespace {

using muster::Box;
using muster::halo::test::layout_of;
using muster::test::Draw;
using muster::test::each_item;
using muster::test::FieldArray;
using muster::test::FieldErrors;
using muster::test::flat;
using muster::test::Grid;
using muster::test::group_of;
using muster::test::Halo;
using muster::test::HaloParts;
using muster::test::HaloSet;
using muster::test::Items;
using muster::test::kNothing;
using muster::test::Late;
using muster::test::Member;
using muster::test::Numbers;
using muster::test::ok;
using muster::test::product;
using muster::test::Stencil;
using muster::test::values;
using muster::test::Window;

// The items that a result of one dim takes, and how much of each. scale 0: items / results.
std::vector<std::pair<std::int64_t, double>> taken(Window::Kind kind, std::int64_t items,
                                                   std::int64_t results, double scale, std::int64_t result) {
  const auto n = static_cast<double>(items), l = static_cast<double>(results),
             o = static_cast<double>(result);
  if (kind == Window::Kind::kNearest)
    return {{scale > 0 ? static_cast<std::int64_t>(o / scale) : result * items / results, 1}};
  if (kind == Window::Kind::kNearestExact) return {{(2 * result + 1) * items / (2 * results), 1}};
  const double step = scale > 0 ? 1 / scale : n / l;
  const double at = kind == Window::Kind::kLinear ? std::max(0.0, (o + 0.5) * step - 0.5)
                    : results > 1                 ? o * (n - 1) / (l - 1)
                                                  : 0;
  const auto low = std::min(static_cast<std::int64_t>(at), items - 1);
  const double rest = at - static_cast<double>(low);
  return {{low, 1 - rest}, {std::min(low + 1, items - 1), rest}};
}

// A field and its interpolation, the same at all ranks.
struct Case {
  Window::Kind kind{};
  std::size_t dims = 1;
  std::int64_t channels = 1, ranks = 1;
  Items items, results;
  std::vector<double> scales;  // by dim; 0: as results say
  std::optional<Stencil> stencil;
  std::string text;
  struct Epoch {
    std::vector<double> x, dy, y, dx;
  };
  std::vector<Epoch> epochs;
};

// The items of all dims that a result takes.
std::vector<std::pair<Items, double>> terms_of(const Case& c, const Items& result) {
  std::vector<std::pair<Items, double>> terms{{{}, 1}};
  for (std::size_t d = 0; d < c.dims; ++d) {
    std::vector<std::pair<Items, double>> longer;
    for (const auto& [item, weight] : terms)
      for (const auto& [i, part] : taken(c.kind, c.items[d], c.results[d], c.scales[d], result[d])) {
        longer.push_back({item, weight * part});
        longer.back().first.push_back(i);
      }
    terms = std::move(longer);
  }
  return terms;
}

void compute(const Case& c, Case::Epoch& e) {
  e.y.assign(e.dy.size(), 0);
  e.dx.assign(e.x.size(), 0);
  Grid::each(c.results, [&](const Items& o) {
    for (const auto& [item, weight] : terms_of(c, o))
      for (std::int64_t k = 0; k < c.channels; ++k) {
        const auto to = static_cast<std::size_t>(flat(c.results, o) * c.channels + k);
        const auto from = static_cast<std::size_t>(flat(c.items, item) * c.channels + k);
        e.y[to] += weight * e.x[from];
        e.dx[from] += weight * e.dy[to];
      }
  });
}
void add_epoch(Draw& draw, Case& c) {
  Case::Epoch& e = c.epochs.emplace_back();
  e.x = values(draw, product(c.items) * c.channels, Numbers::kFloats);
  e.dy = values(draw, product(c.results) * c.channels, Numbers::kFloats);
  compute(c, e);
}

Case drawn(std::uint64_t seed) {
  Draw draw(seed);
  Case c;
  c.kind = static_cast<Window::Kind>(
      draw.among(static_cast<int>(Window::Kind::kNearest), static_cast<int>(Window::Kind::kLinearAligned)));
  c.dims = static_cast<std::size_t>(draw.among(1, 3));
  c.channels = draw.among(1, 4);
  Items cuts(c.dims + 1, 1);
  std::vector<Window> windows(c.dims + 1);
  windows[c.dims].kind = Window::Kind::kEach;
  std::map<std::size_t, Items> lengths;
  std::vector<Items> given(c.dims + 1);
  for (std::size_t d = 0; d < c.dims; ++d) {
    c.items.push_back(draw.among(1, 9));
    c.results.push_back(draw.among(1, 14));
    windows[d].kind = c.kind;
    windows[d].length = c.results[d];
    if (draw.one_in(3)) continue;
    cuts[d] = std::min(draw.among(2, c.dims == 1   ? 8
                                     : c.dims == 2 ? 4
                                                   : 2),
                       muster::test::kFieldRanks / c.ranks);
    c.ranks *= cuts[d];
    if (cuts[d] == 1) continue;
    if (draw.one_in(2)) lengths[d] = draw.lengths(c.items[d], cuts[d]);
    if (draw.one_in(2)) given[d] = draw.lengths(c.results[d], cuts[d]);
  }
  c.text = fmt::format("seed {}: kind {}, {} items to {}, cut in {}", seed, static_cast<int>(c.kind),
                       fmt::join(c.items, " "), fmt::join(c.results, " "), fmt::join(cuts, " "));
  Items shape = c.items;
  shape.push_back(c.channels);
  c.scales.assign(c.dims, 0);
  c.stencil = *Stencil::make(layout_of(shape, cuts, lengths), windows, given);
  add_epoch(draw, c);
  return c;
}

// `sizes`: of the shards of each dim. A dim has as many results as it is given, or as its scale says.
Case fixed(Window::Kind kind, const std::vector<Items>& sizes, const Items& results,
           const std::vector<double>& scales, std::int64_t channels) {
  Draw draw(5);
  Case c;
  c.kind = kind;
  c.dims = sizes.size();
  c.channels = channels;
  c.scales = scales;
  c.text = fmt::format("kind {} to {}, scales {}", static_cast<int>(kind), fmt::join(results, " "),
                       fmt::join(scales, " "));
  Items cuts(c.dims + 1, 1);
  std::vector<Window> windows(c.dims + 1);
  std::map<std::size_t, Items> lengths;
  for (std::size_t d = 0; d < c.dims; ++d) {
    c.items.push_back(std::accumulate(sizes[d].begin(), sizes[d].end(), std::int64_t{0}));
    windows[d].kind = kind;
    windows[d].length = results[d];
    windows[d].scale = scales[d];
    c.results.push_back(windows[d].results(c.items[d]));
    cuts[d] = static_cast<std::int64_t>(sizes[d].size());
    c.ranks *= cuts[d];
    lengths[d] = sizes[d];
  }
  Items shape = c.items;
  shape.push_back(channels);
  c.stencil = *Stencil::make(layout_of(shape, cuts, lengths), windows);
  for (int epoch = 0; epoch < muster::test::kEpochs; ++epoch) add_epoch(draw, c);
  Case::Epoch& first = c.epochs[0];
  std::iota(first.x.begin(), first.x.end(), 1);
  std::fill(first.dy.begin(), first.dy.end(), 1);
  compute(c, first);
  return c;
}

// A rank's part of it.
struct Part {
  Part(Member& of, const Case& with)
      : member(of),
        c(with),
        mine(*c.stencil->halo(of.rank)),
        back(*c.stencil->gradient()->halo(of.rank)),
        x(of, mine.held, c.dims, c.channels, MUSTER_F32),
        y(of, mine.results, c.dims, c.channels, MUSTER_F32),
        dy(of, back.held, c.dims, c.channels, MUSTER_F32),
        dx(of, mine.own, c.dims, c.channels, MUSTER_F32) {}
  Part(const Part&) = delete;
  Part& operator=(const Part&) = delete;
  ~Part() {
    for (const muster_plan each : plans) ok(muster_plan_destroy(member.session, each));
    for (const FieldArray* const array : {&x, &y, &dy, &dx})
      ok(muster_buffer_free(member.session, array->view.buffer));
  }
  void fill(const Case::Epoch& e) {
    x.fill(kNothing);
    dy.fill(kNothing);
    each_item(mine.own, [&](const Items& i) {
      for (std::int64_t k = 0; k < c.channels; ++k) x.set(i, k, e.x[at(c.items, i, k)]);
    });
    each_item(mine.results, [&](const Items& o) {
      for (std::int64_t k = 0; k < c.channels; ++k) dy.set(o, k, e.dy[at(c.results, o, k)]);
    });
  }
  void expect(const Case::Epoch& e) const {
    FieldErrors of_y, of_dx;
    each_item(mine.results, [&](const Items& o) {
      for (std::int64_t k = 0; k < c.channels; ++k) of_y.note(y.get(o, k), e.y[at(c.results, o, k)], 2);
    });
    each_item(mine.own, [&](const Items& i) {
      for (std::int64_t k = 0; k < c.channels; ++k) of_dx.note(dx.get(i, k), e.dx[at(c.items, i, k)], 20);
    });
    EXPECT_LE(of_y.most, 1e-5) << "forward";
    EXPECT_LE(of_dx.most, 1e-5) << "by items";
  }
  HaloParts halo() {
    HaloParts parts{*c.stencil, MUSTER_CORNERS_DIRECT, MUSTER_HALO_FETCH, x.of_halo(), dy.of_halo(), {}, {}};
    parts.forward.interior = {plan(mine.interior, true)};
    parts.backward.interior = {plan(back.interior, false)};
    for (const Box& box : mine.boundaries) parts.forward.boundary.push_back(plan(box, true));
    for (const Box& box : back.boundaries) parts.backward.boundary.push_back(plan(box, false));
    return parts;
  }
  std::size_t at(const Items& shape, const Items& item, std::int64_t channel) const {
    return static_cast<std::size_t>(flat(shape, item) * c.channels + channel);
  }
  muster_plan plan(const Box& box, bool forward) {
    muster_interpolation n = MUSTER_INTERPOLATION_INIT;
    n.mode = static_cast<std::int32_t>(c.kind);
    for (std::size_t d = 0; d < c.dims; ++d) {
      n.items[d] = c.items[d];
      n.results[d] = c.scales[d] > 0 ? 0 : c.results[d];
      n.scale[d] = c.scales[d];
      n.x_offset[d] = (forward ? mine.held : mine.own).offset[d];
      n.y_offset[d] = (forward ? mine.results : back.held).offset[d];
      n.offset[d] = box.offset[d];
      n.length[d] = box.length[d];
    }
    const muster_kernel kernel = forward ? muster_interpolate_forward(&n, x.view, y.view)
                                         : muster_interpolate_backward(&n, dy.view, dx.view, 0);
    ok(muster_plan_kernel(member.session, &kernel, &plans.emplace_back()));
    return plans.back();
  }

  Member& member;
  const Case& c;
  Halo mine, back;
  FieldArray x, y, dy, dx;
  std::vector<muster_plan> plans;
};

class Interpolated : public muster::test::Fields<Case> {
 protected:
  // All epochs; what of the field has travelled.
  static muster_halos_info play(Member& member, const Case& c) {
    SCOPED_TRACE(c.text);
    muster_halos_info info = MUSTER_HALOS_INFO_INIT;
    if (member.rank >= c.ranks) return info;
    const muster_group group = group_of(member, c.ranks);
    {
      Part part(member, c);
      HaloSet halos(member, group);
      halos.add(part.halo());
      Late late(c.epochs.size(), member.rank);
      for (const Case::Epoch& e : c.epochs) {
        part.fill(e);
        late.maybe();
        halos.forward();
        part.x.fill(1e30);
        late.maybe();
        halos.backward();
        part.dy.fill(1e30);
        part.expect(e);
      }
      ok(muster_halos_query(halos.get(), &info));
    }
    ok(muster_group_free(member.session, group));
    return info;
  }
};

TEST_F(Interpolated, AreWhatOneRankComputes) {
  const std::uint64_t cases = muster::test::property_cases(30);
  with_ranks(muster::test::kFieldRanks, [&](Member& member) {
    bool all_well = true;
    for (std::uint64_t seed = 0; seed < cases && all_well; ++seed)
      all_well = share(
          member, [&] { return drawn(seed + 4'000'000); }, [&](const Case& c) { play(member, c); });
    meet_and_leave(member);
  });
}

// Goal:   I1 of the catalogue: 1 2 3 4 on two ranks, linearly to twice as many.
TEST_F(Interpolated, GiveTheLiteralResults) {
  const Case c = fixed(Window::Kind::kLinear, {{2, 2}}, {8}, {0}, 1);
  EXPECT_EQ(c.epochs[0].y, (std::vector<double>{1, 1.25, 1.75, 2.25, 2.75, 3.25, 3.75, 4}));
  with_ranks(2, [&](Member& member) {
    play(member, c);
    meet_and_leave(member);
  });
}

// Goal:   I2: a whole multiple of nearest items moves no byte, and meets nobody.
TEST_F(Interpolated, OfNearestItemsMoveNothing) {
  const Case c = fixed(Window::Kind::kNearest, {{3, 0, 2, 4}}, {0}, {3}, 5);
  with_ranks(4, [&](Member& member) {
    const muster_halos_info info = play(member, c);
    EXPECT_EQ(info.forward_bytes_in + info.forward_bytes_out, 0U);
    EXPECT_EQ(info.backward_bytes_in + info.backward_bytes_out, 0U);
    EXPECT_EQ(info.exchanges, 0U);
    meet_and_leave(member);
  });
}

// Goal:   I3 and I6: to more and to fewer items, by a size or by a scale that is not whole, one for each dim,
//         on ranks along one dim or two.
TEST_F(Interpolated, ToOtherSizesAreWhatOneRankComputes) {
  using Kind = Window::Kind;
  const std::vector<Items> line{{5, 3}}, plane{{4, 3}, {2, 4}}, square{{3, 2}, {5}};
  const Case cases[] = {
      fixed(Kind::kLinear, line, {12}, {0}, 3),
      fixed(Kind::kLinear, line, {4}, {0}, 3),
      fixed(Kind::kNearest, line, {4}, {0}, 3),
      fixed(Kind::kNearest, line, {12}, {0}, 3),
      fixed(Kind::kLinear, line, {0}, {1.5}, 2),
      fixed(Kind::kNearest, line, {0}, {1.5}, 2),
      fixed(Kind::kLinear, plane, {10, 9}, {0, 0}, 2),
      fixed(Kind::kLinear, plane, {0, 0}, {1.5, 0.75}, 2),
      fixed(Kind::kNearest, plane, {0, 0}, {2.5, 1.5}, 2),
      fixed(Kind::kLinearAligned, plane, {13, 4}, {0, 0}, 2),
      fixed(Kind::kLinear, square, {0, 0}, {1.5, 1.5}, 4),
  };
  with_ranks(4, [&](Member& member) {
    for (const Case& c : cases) {
      play(member, c);
      await_all(member);
    }
    meet_and_leave(member);
  });
}

}  // namespace
