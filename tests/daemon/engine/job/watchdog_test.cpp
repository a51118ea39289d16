#include "daemon/engine/job/watchdog.hpp"

#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

namespace muster::engine {
namespace {

using Finding = StallJudge::Finding;

constexpr Nanos kPeriod = StallJudge::kPeriod;

TEST(StallJudge, TellsOnceAndThenEnds) {
  StallJudge judge;
  Instant now = std::chrono::hours(1);
  EXPECT_EQ(judge.look(7, now), Finding::kWell);
  int told = 0;
  int looks = 0;
  for (Finding finding = Finding::kWell; finding != Finding::kEnd; ++looks) {
    ASSERT_LT(looks, 1000);
    finding = judge.look(7, now += kPeriod);
    if (finding != Finding::kTell) continue;
    ++told;
    EXPECT_EQ(judge.stuck_for(), StallJudge::kTellAfter);
  }
  EXPECT_EQ(told, 1);
  EXPECT_EQ(looks, StallJudge::kEndAfter / kPeriod);
}

// A lock that is passed on, or that nobody holds, is no stall however long it goes on.
TEST(StallJudge, SeesThatTheBatonMoves) {
  StallJudge judge;
  Instant now{0};
  for (std::uint64_t holds = 1; holds < 400; holds += 2)
    EXPECT_EQ(judge.look(holds, now += kPeriod), Finding::kWell);
  for (int i = 0; i < 400; ++i) EXPECT_EQ(judge.look(402, now += kPeriod), Finding::kWell);
}

// Goal:   a machine that slept, or a process that was stopped with the lock in its hand, was not stuck.
TEST(StallJudge, DoubtsItselfFirst) {
  StallJudge judge;
  Instant now{0};
  judge.look(1, now);
  for (int i = 0; i < 9; ++i) {
    EXPECT_EQ(judge.look(1, now += std::chrono::hours(8)), Finding::kWell);
    EXPECT_LE(judge.stuck_for(), (i + 1) * kPeriod);
  }
}

// A second stall is told like the first.
TEST(StallJudge, BeginsAnewWithEachHolder) {
  StallJudge judge;
  Instant now{0};
  for (const std::uint64_t holds : {1u, 3u}) {
    int told = 0;
    judge.look(holds, now += kPeriod);
    for (int i = 0; i < 20; ++i) told += judge.look(holds, now += kPeriod) == Finding::kTell ? 1 : 0;
    EXPECT_EQ(told, 1);
  }
}

TEST(EngineLock, SaysWhoHoldsItAndWhatFor) {
  EngineLock lock;
  EXPECT_EQ(lock.sight().holds % 2, 0u);
  {
    const std::lock_guard guard(lock);
    lock.doing("a test");
    const EngineLock::Sight sight = lock.sight();
    EXPECT_EQ(sight.holds % 2, 1u);
    EXPECT_STREQ(sight.doing, "a test");
    EXPECT_EQ(sight.thread, gettid());
  }
  EXPECT_EQ(lock.sight().holds % 2, 0u);
}

TEST(Watchdog, SaysThatItsThreadCouldNotBeStarted) {
#if defined(MUSTER_SANITIZED)
  GTEST_SKIP() << "the sanitizer's own address space does not fit into a limit";
#endif
  const EngineLock lock;
  const SteadyClock clock;
  Watchdog watchdog(lock, clock);
  rlimit limit{};
  ASSERT_EQ(getrlimit(RLIMIT_AS, &limit), 0);
  std::uint64_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  const rlimit little{pages * 4096 + (std::uint64_t{1} << 20), limit.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_AS, &little), 0);
  const Status started = watchdog.start();
  ASSERT_EQ(setrlimit(RLIMIT_AS, &limit), 0);
  EXPECT_EQ(started.code(), Code::kNoResource);
  EXPECT_THAT(started.message(), ::testing::HasSubstr("raise the process limit"));
  EXPECT_TRUE(watchdog.start().ok());
}

}  // namespace
}  // namespace muster::engine
