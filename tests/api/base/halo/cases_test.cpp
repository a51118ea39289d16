// Random stencils, held against the same operator on one rank.
#include "tests/api/base/halo/drawn.hpp"
#include "tests/support/property_cases.hpp"

#include <gtest/gtest.h>

namespace muster::halo::test {
namespace {

void play(std::uint64_t seed) {
  Draw draw(seed);
  const Drawn d = drawn(draw, seed, 64);
  SCOPED_TRACE(d.text);
  const Grid x = draw.numbers(d.played.items()), dy = draw.numbers(d.played.results());
  const Grid y = d.played.forward(x), dx = d.played.gradient(dy), dw = d.played.weight_gradient(x, dy);
  for (const Corners corners : {Corners::kDirect, Corners::kByDims}) {
    const Played::Outcome outcome = d.played.on(d.stencil, corners, x, dy);
    EXPECT_EQ(outcome.y.values, y.values);
    EXPECT_EQ(outcome.dx.values, dx.values);
    EXPECT_EQ(outcome.dw.values, dw.values);
    if (!outcome.dx_fetched.values.empty()) EXPECT_EQ(outcome.dx_fetched.values, dx.values);
  }
}

// Goal:   whatever the shape, the shards and the windows: what the ranks compute from what they hold is
//         what one rank computes, forward and backward, by either way of corners; and the lists of all
//         ranks fit together.
TEST(HaloCases, AreWhatOneRankComputes) {
  const std::uint64_t cases = muster::test::property_cases(3'000);
  for (std::uint64_t seed = 0; seed < cases && !::testing::Test::HasFailure(); ++seed) play(seed);
}

}  // namespace
}  // namespace muster::halo::test
