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

TEST(Instant, NeverLiesBeyondTheLast) {
  EXPECT_EQ(later(5ns, 3ns), 8ns);
  EXPECT_EQ(later(5ns, Nanos::max()), Instant::max());
  EXPECT_EQ(later(0ns, Nanos::max()), Instant::max());
  EXPECT_EQ(later(Instant::max(), 1ns), Instant::max());
}

}  // namespace
}  // namespace muster
