// The literal cases of uneven shards, played in plain loops.
#include "tests/api/base/halo/literals.hpp"

#include <numeric>
#include <string>
#include <utility>

#include <gtest/gtest.h>

namespace muster::halo::test {
namespace {

using Kind = Window::Kind;
using Pad = Window::Pad;

Items starts_of(const Layout& layout, std::size_t dim = 0) {
  Items starts{0};
  for (std::int64_t rank = 0; rank < layout.ranks(); ++rank)
    starts.push_back(starts.back() + layout.local_shape(rank)[dim]);
  return starts;
}

Stencil stencil_of(const Layout& layout, const std::vector<Window>& windows,
                   const std::vector<Items>& lengths = {}) {
  Result<Stencil> stencil = Stencil::make(layout, windows, lengths);
  EXPECT_TRUE(stencil.has_value()) << stencil.error().text();
  return stencil.value();
}

Grid counted(const Items& shape) {
  Grid grid(shape);
  std::iota(grid.values.begin(), grid.values.end(), 1);
  return grid;
}

class HaloLiterals : public ::testing::TestWithParam<Literal> {};

// Goal:   results, gradients and the ghosts that travel are those that were worked out by hand.
TEST_P(HaloLiterals, AreWhatHandsFound) {
  const Literal& c = GetParam();
  const std::int64_t items = std::accumulate(c.sizes.begin(), c.sizes.end(), std::int64_t{0});
  const Layout layout = layout_of({items}, {static_cast<std::int64_t>(c.sizes.size())}, {{0, c.sizes}});
  const Stencil stencil = stencil_of(layout, {c.window});
  EXPECT_EQ(starts_of(stencil.result()), c.boundaries);

  const Played played({c.window}, {items}, counted({c.window.kernel}));
  const Grid x = counted({items});
  const Grid dy(played.results(), 1);
  EXPECT_EQ(played.forward(x).values, c.y);
  EXPECT_EQ(played.gradient(dy).values, c.dx);
  EXPECT_EQ(played.weight_gradient(x, dy).values, c.dw);
  for (const Corners corners : {Corners::kDirect, Corners::kByDims}) {
    const Played::Outcome outcome = played.on(stencil, corners, x, dy);
    EXPECT_EQ(outcome.y.values, c.y);
    EXPECT_EQ(outcome.dx.values, c.dx);
    EXPECT_EQ(outcome.dw.values, c.dw);
    if (c.window.pad == Pad::kZeros) EXPECT_EQ(outcome.dx_fetched.values, c.dx);
    if (c.moved >= 0) EXPECT_EQ(outcome.moved, c.moved);
  }
}
INSTANTIATE_TEST_SUITE_P(One, HaloLiterals, ::testing::ValuesIn(literals()), [](const auto& c) {
  std::string name = c.param.name;
  std::erase(name, ' ');
  return name;
});

// Goal:   case X1, transposed convolutions, whichever rank has three of the four items.
TEST(HaloTransposed, GivesTheKnownResults) {
  struct Case {
    Window window;
    std::vector<double> y;
  };
  for (const Case& c :
       {Case{{Kind::kTransposed, 2, 2}, {1, 2, 2, 4, 3, 6, 4, 8}},
        Case{{Kind::kTransposed, 3, 2, 1, 1, 1, Pad::kZeros, false, 1}, {2, 5, 4, 9, 6, 13, 8, 12}},
        Case{{Kind::kTransposed, 3, 3}, {1, 2, 3, 2, 4, 6, 3, 6, 9, 4, 8, 12}},
        Case{{Kind::kTransposed, 3, 1, 1, 1, 1}, {4, 10, 16, 17}}})
    for (const Items& sizes : {Items{3, 1}, Items{1, 3}, Items{4, 0}, Items{1, 1, 1, 1}}) {
      const Layout layout = layout_of({4}, {static_cast<std::int64_t>(sizes.size())}, {{0, sizes}});
      const Stencil stencil = stencil_of(layout, {c.window});
      const Played played({c.window}, {4}, counted({c.window.kernel}));
      const Grid x = counted({4}), dy = counted(played.results());
      EXPECT_EQ(played.forward(x).values, c.y);
      const Played::Outcome outcome = played.on(stencil, Corners::kDirect, x, dy);
      EXPECT_EQ(outcome.y.values, c.y);
      EXPECT_EQ(outcome.dx.values, played.gradient(dy).values);
      EXPECT_EQ(outcome.dx_fetched.values, outcome.dx.values);
    }
}

// Goal:   case P1, pools: the results of each rank, and what it reads of the other one.
TEST(HaloPools, ReadTheKnownItems) {
  const Layout layout = layout_of({10}, {2});
  struct Case {
    Window window;
    Items boundaries;
    Extent first, second;  // what the ranks read
  };
  for (const Case& c : {Case{{Kind::kPool, 3, 2, 1, 1, 1}, {0, 3, 5}, {0, 6}, {5, 10}},
                        Case{{Kind::kPool, 3, 2, 1, 1, 1, Pad::kZeros, true}, {0, 3, 6}, {0, 6}, {5, 10}},
                        Case{{Kind::kPool, 3, 1, 1, 1, 1}, {0, 5, 10}, {0, 6}, {4, 10}},
                        Case{{Kind::kPool, 2, 2}, {0, 3, 5}, {0, 6}, {6, 10}}}) {
    const Stencil stencil = stencil_of(layout, {c.window});
    EXPECT_EQ(starts_of(stencil.result()), c.boundaries);
    const std::vector<Halo> halos = halos_of(stencil);
    const auto extent = [&](std::size_t rank) {
      return Extent{halos[rank].needed.offset[0],
                    halos[rank].needed.offset[0] + halos[rank].needed.length[0]};
    };
    EXPECT_EQ(extent(0), c.first);
    EXPECT_EQ(extent(1), c.second);
  }
}

// Goal:   case C1: corners arrive, in one exchange or dim by dim, and gradients return through both.
TEST(HaloCorners, Arrive) {
  const Layout layout = layout_of({4, 4}, {2, 2});
  const Window window = convolution(3, 1, 1, 1, 1);
  const Stencil stencil = stencil_of(layout, {window, window});
  const Played played({window, window}, {4, 4}, Grid({3, 3}, 1));
  const Grid x = counted({4, 4}), dy({4, 4}, 1);
  const std::vector<double> y{14, 24, 30, 22, 33, 54, 63, 45, 57, 90, 99, 69, 46, 72, 78, 54};
  const std::vector<double> dx{4, 6, 6, 4, 6, 9, 9, 6, 6, 9, 9, 6, 4, 6, 6, 4};
  for (const Corners corners : {Corners::kDirect, Corners::kByDims}) {
    const Played::Outcome outcome = played.on(stencil, corners, x, dy);
    EXPECT_EQ(outcome.y.values, y);
    EXPECT_EQ(outcome.dx.values, dx);
    EXPECT_EQ(outcome.dx_fetched.values, dx);
    EXPECT_EQ(outcome.moved, 4 * 5);
  }
}

// Goal:   the received elements of cubes are those of the shells around them.
TEST(HaloCorners, AreCountedOnce) {
  struct Case {
    std::int64_t side, halo, dims, received;
  };
  for (const Case& c : {Case{64, 1, 2, 260}, Case{64, 1, 3, 25352}, Case{32, 3, 3, 22104}}) {
    const auto dims = static_cast<std::size_t>(c.dims);
    const Layout layout = layout_of(Items(dims, 3 * c.side), Items(dims, 3));
    const Window window = convolution(2 * c.halo + 1, 1, 1, c.halo, c.halo);
    const Stencil stencil = stencil_of(layout, std::vector<Window>(dims, window));
    const std::int64_t middle = dims == 2 ? 4 : 13;
    for (const Corners corners : {Corners::kDirect, Corners::kByDims}) {
      const Result<Halo> halo = stencil.halo(middle, corners);
      ASSERT_TRUE(halo.has_value());
      EXPECT_EQ(halo->elements_in, c.received);
      EXPECT_EQ(halo->elements_out, c.received);
      const std::size_t all = dims == 2 ? 8 : 26;
      EXPECT_EQ(halo->gets.size(), corners == Corners::kDirect ? all : 2 * dims);
    }
  }
}

// Goal:   case C9: two layers that share one exchange, of two rows, give what two exchanges give. The rows of
//         the layer between that lie outside the field are its pads, and not what the kernel would find
//         there.
TEST(HaloDeep, SharesOneExchange) {
  const Window layer = convolution(3, 1, 1, 1, 1);
  for (const Items& sizes : {Items{4, 4}, Items{1, 6, 1}, Items{3, 0, 5}}) {
    const Layout layout = layout_of({8}, {static_cast<std::int64_t>(sizes.size())}, {{0, sizes}});
    const Stencil stencil = stencil_of(layout, {layer, layer});
    EXPECT_EQ(stencil.layers(), 2U);
    const Played played({layer}, {8}, counted({3}));
    const Grid x = counted({8}), y = played.forward(played.forward(x));
    const std::vector<Halo> halos = halos_of(stencil);
    std::vector<Grid> held;
    for (const Halo& halo : halos) {
      held.push_back(Grid::of(halo.held, std::numeric_limits<double>::quiet_NaN()));
      for (std::int64_t i = 0; i < halo.own.length[0]; ++i)
        held.back().at({halo.own.offset[0] + i - halo.held.offset[0]}) = x.at({halo.own.offset[0] + i});
    }
    carry(halos, held);
    for (std::size_t rank = 0; rank < halos.size(); ++rank) {
      const Halo& halo = halos[rank];
      ASSERT_EQ(halo.layers.size(), 1U);
      Grid between = Grid::of(halo.layers[0]);
      const auto conv = [](std::int64_t o, const Grid& from, std::int64_t begins, std::int64_t items) {
        double sum = 0;
        for (std::int64_t k = 0; k < 3; ++k)
          if (o + k - 1 >= 0 && o + k - 1 < items)
            sum += static_cast<double>(k + 1) * from.at({o + k - 1 - begins});
        return sum;
      };
      for (std::int64_t i = 0; i < halo.layers[0].length[0]; ++i)
        between.at({i}) = conv(halo.layers[0].offset[0] + i, held[rank], halo.held.offset[0], 8);
      for (std::int64_t i = 0; i < halo.results.length[0]; ++i) {
        const std::int64_t o = halo.results.offset[0] + i;
        EXPECT_EQ(conv(o, between, halo.layers[0].offset[0], 8), y.at({o}));
      }
    }
  }
}

}  // namespace
}  // namespace muster::halo::test
