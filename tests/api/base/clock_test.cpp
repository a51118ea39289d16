#include "api/base/clock.hpp"

#include <gtest/gtest.h>

namespace muster {
namespace {

using namespace std::chrono_literals;

TEST(SteadyClock, NeverGoesBack) {
  const SteadyClock clock;
  Instant before = clock.now();
  EXPECT_GT(before, 0ns);
  for (int i = 0; i < 1000; ++i) {
    const Instant after = clock.now();
    ASSERT_GE(after, before);
    before = after;
  }
}

TEST(ManualClock, MovesOnlyWhenTold) {
  ManualClock clock;
  EXPECT_EQ(clock.now(), 0ns);
  EXPECT_EQ(clock.now(), 0ns);
  clock.advance(1500ms);
  clock.advance(1ns);
  EXPECT_EQ(clock.now(), 1'500'000'001ns);
}

TEST(ManualClockDeathTest, AssertsOnGoingBack) {
  ManualClock clock;
  EXPECT_DEATH(clock.advance(-1ns), "assertion failed: by >= Nanos");
}

TEST(Instant, NeverLiesBeyondTheLast) {
  EXPECT_EQ(later(5ns, 3ns), 8ns);
  EXPECT_EQ(later(5ns, Nanos::max()), Instant::max());
  EXPECT_EQ(later(0ns, Nanos::max()), Instant::max());
  EXPECT_EQ(later(Instant::max(), 1ns), Instant::max());
}

}  // namespace
}  // namespace muster
