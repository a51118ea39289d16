// Interpolation of fields that are cut over ranks, held against plain loops in doubles.
#include "tests/api/client/fields/fields.hpp"

#include <map>
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
using muster::test::Halo;
using muster::test::Items;
using muster::test::Member;
using muster::test::Numbers;
using muster::test::ok;
using muster::test::product;
using muster::test::Stencil;
using muster::test::values;
using muster::test::Window;

// The items that a result of one dim takes, and how much of each.
std::vector<std::pair<std::int64_t, double>> taken(Window::Kind kind, std::int64_t items,
                                                   std::int64_t results, std::int64_t result) {
  const auto n = static_cast<double>(items), l = static_cast<double>(results),
             o = static_cast<double>(result);
  if (kind == Window::Kind::kNearest) return {{result * items / results, 1}};
  if (kind == Window::Kind::kNearestExact) return {{(2 * result + 1) * items / (2 * results), 1}};
  const double at = kind == Window::Kind::kLinear ? std::max(0.0, (o + 0.5) * n / l - 0.5)
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
  std::optional<Stencil> stencil;
  std::string text;
  std::vector<double> x, dy, y, dx;
};

// The items of all dims that a result takes.
std::vector<std::pair<Items, double>> terms_of(const Case& c, const Items& result) {
  std::vector<std::pair<Items, double>> terms{{{}, 1}};
  for (std::size_t d = 0; d < c.dims; ++d) {
    std::vector<std::pair<Items, double>> longer;
    for (const auto& [item, weight] : terms)
      for (const auto& [i, part] : taken(c.kind, c.items[d], c.results[d], result[d])) {
        longer.push_back({item, weight * part});
        longer.back().first.push_back(i);
      }
    terms = std::move(longer);
  }
  return terms;
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
  c.stencil = *Stencil::make(layout_of(shape, cuts, lengths), windows, given);
  c.x = values(draw, product(shape), Numbers::kFloats);
  c.dy = values(draw, product(c.results) * c.channels, Numbers::kFloats);
  c.y.resize(c.dy.size());
  c.dx.resize(c.x.size());
  Grid::each(c.results, [&](const Items& o) {
    for (const auto& [item, weight] : terms_of(c, o))
      for (std::int64_t k = 0; k < c.channels; ++k) {
        const auto to = static_cast<std::size_t>(flat(c.results, o) * c.channels + k);
        const auto from = static_cast<std::size_t>(flat(c.items, item) * c.channels + k);
        c.y[to] += weight * c.x[from];
        c.dx[from] += weight * c.dy[to];
      }
  });
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
        dx(of, mine.own, c.dims, c.channels, MUSTER_F32) {
    each_item(mine.own, [&](const Items& i) {
      for (std::int64_t k = 0; k < c.channels; ++k) x.set(i, k, c.x[at(c.items, i, k)]);
    });
    each_item(mine.results, [&](const Items& o) {
      for (std::int64_t k = 0; k < c.channels; ++k) dy.set(o, k, c.dy[at(c.results, o, k)]);
    });
  }
  Part(const Part&) = delete;
  Part& operator=(const Part&) = delete;
  ~Part() {
    for (const muster_plan each : plans) ok(muster_plan_destroy(member.session, each));
    for (const FieldArray* const array : {&x, &y, &dy, &dx})
      ok(muster_buffer_free(member.session, array->view.buffer));
  }
  std::size_t at(const Items& shape, const Items& item, std::int64_t channel) const {
    return static_cast<std::size_t>(flat(shape, item) * c.channels + channel);
  }
  muster_plan plan(const Box& box, bool forward) {
    muster_interpolation n = MUSTER_INTERPOLATION_INIT;
    n.mode = static_cast<std::int32_t>(c.kind);
    for (std::size_t d = 0; d < c.dims; ++d) {
      n.items[d] = c.items[d];
      n.results[d] = c.results[d];
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

class Interpolated : public muster::test::Fields {
 protected:
  static void play(Member& member, std::uint64_t seed) {
    const Case c = drawn(seed);
    SCOPED_TRACE(c.text);
    if (member.rank >= c.ranks) return;
    const muster_group group = group_of(member, c.ranks);
    {
      Part part(member, c);
      Kernels forward{{part.plan(part.mine.interior, true)}, {}};
      Kernels backward{{part.plan(part.back.interior, false)}, {}};
      for (const Box& box : part.mine.boundaries) forward.boundary.push_back(part.plan(box, true));
      for (const Box& box : part.back.boundaries) backward.boundary.push_back(part.plan(box, false));
      travel(member, group, *c.stencil, MUSTER_HALO_FETCH, part.x, part.dy, forward, backward);
      FieldErrors y, dx;
      each_item(part.mine.results, [&](const Items& o) {
        for (std::int64_t k = 0; k < c.channels; ++k)
          y.note(part.y.get(o, k), c.y[part.at(c.results, o, k)], 2);
      });
      each_item(part.mine.own, [&](const Items& i) {
        for (std::int64_t k = 0; k < c.channels; ++k)
          dx.note(part.dx.get(i, k), c.dx[part.at(c.items, i, k)], 20);
      });
      EXPECT_LE(y.most, 1e-5) << "forward";
      EXPECT_LE(dx.most, 1e-5) << "by items";
    }
    ok(muster_group_free(member.session, group));
  }
};

TEST_F(Interpolated, AreWhatOneRankComputes) {
  const std::uint64_t cases = muster::test::property_cases(30);
  with_ranks(muster::test::kFieldRanks, [&](Member& member) {
    for (std::uint64_t seed = 0; seed < cases && !HasFailure(); ++seed) {
      play(member, seed + 4'000'000);
      ASSERT_EQ(member.run(member.barrier()), MUSTER_OK) << member.error;
    }
    meet_and_leave(member);
  });
}

}  // namespace
