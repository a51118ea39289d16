// The literal cases of convolutions, by real ranks: the first epoch has the numbers that hands found, the
// others have random ones.
#include "tests/api/base/halo/literals.hpp"

#include "tests/api/client/fields/layer.hpp"

#include <algorithm>
#include <numeric>
#include <string>
#include <vector>

namespace {

using muster::halo::test::Literal;
using muster::halo::test::literals;
using muster::test::Alone;
using muster::test::compute;
using muster::test::Draw;
using muster::test::Items;
using muster::test::Layer;
using muster::test::layer_of;
using muster::test::LayerEpoch;
using muster::test::LayerWay;
using muster::test::Member;
using muster::test::Numbers;
using muster::test::run_epochs;

void count_up(std::vector<double>& numbers) {
  std::iota(numbers.begin(), numbers.end(), 1);
}

// Its first epoch has x = 1, 2, …, w = 1, 2, …, and dy = 1, or w as given.
void make_literal(Layer& l, double w = 0) {
  if (w == 0)
    count_up(l.w);
  else
    std::fill(l.w.begin(), l.w.end(), w);
  std::fill(l.bias.begin(), l.bias.end(), 0);
  count_up(l.epochs[0].x);
  std::fill(l.epochs[0].dy.begin(), l.epochs[0].dy.end(), 1);
  for (LayerEpoch& e : l.epochs) compute(l, e);
}

Layer layer_of_literal(const Literal& c) {
  const std::int64_t items = std::accumulate(c.sizes.begin(), c.sizes.end(), std::int64_t{0});
  Layer l = layer_of(c.name, {items}, c.window, {c.sizes}, Numbers::kWhole, 11, 1, 1);
  make_literal(l);
  return l;
}

class LiteralFields : public muster::test::Fields<Layer> {};

// Goal:   every literal case, forward and backward, whichever way gradients cross the cuts.
TEST_F(LiteralFields, AreWhatHandsFound) {
  std::vector<Layer> layers;
  for (const Literal& c : literals()) {
    const Layer& l = layers.emplace_back(layer_of_literal(c));
    EXPECT_EQ(l.epochs[0].y, c.y) << c.name;
    EXPECT_EQ(l.epochs[0].dx, c.dx) << c.name;
    EXPECT_EQ(l.epochs[0].dw, c.dw) << c.name;
  }
  with_ranks(4, [&](Member& member) {
    std::uint64_t seed = 0;
    for (const Layer& l : layers)
      for (const muster_corners corners : {MUSTER_CORNERS_DIRECT, MUSTER_CORNERS_BY_DIMS}) {
        if (l.zeros) run_epochs(member, l, Alone::kNo, ++seed, {corners, MUSTER_HALO_FETCH});
        run_epochs(member, l, Alone::kNo, ++seed, {corners, MUSTER_HALO_RETURN});
        await_all(member);
      }
    meet_and_leave(member);
  });
}

// Goal:   C1 of the catalogue: corners arrive on two by two ranks, in one exchange or dim by dim.
TEST_F(LiteralFields, HaveTheirCorners) {
  const muster::test::Window same = muster::halo::test::convolution(3, 1, 1, 1, 1);
  Layer l = layer_of("C1", {4, 4}, same, {{2, 2}, {2, 2}}, Numbers::kWhole, 12, 1, 1);
  make_literal(l, 1);
  EXPECT_EQ(l.epochs[0].y,
            (std::vector<double>{14, 24, 30, 22, 33, 54, 63, 45, 57, 90, 99, 69, 46, 72, 78, 54}));
  EXPECT_EQ(l.epochs[0].dx, (std::vector<double>{4, 6, 6, 4, 6, 9, 9, 6, 6, 9, 9, 6, 4, 6, 6, 4}));
  with_ranks(4, [&](Member& member) {
    for (const muster_corners corners : {MUSTER_CORNERS_DIRECT, MUSTER_CORNERS_BY_DIMS})
      for (const muster_halo_gradients how : {MUSTER_HALO_FETCH, MUSTER_HALO_RETURN})
        run_epochs(member, l, Alone::kToo, static_cast<std::uint64_t>(how), {corners, how});
    meet_and_leave(member);
  });
}

}  // namespace
