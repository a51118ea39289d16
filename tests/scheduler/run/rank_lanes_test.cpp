// RankLanes: nothing of a client that has left is there for the next one.
#include "scheduler/run/rank_lanes.hpp"

#include "scheduler/run/plan.hpp"

#include <gtest/gtest.h>

namespace muster::scheduler {
namespace {

constexpr std::uint32_t kTimeline = shm::kClientTimelineFirst + 1;

class RankLanesTest : public ::testing::Test {
 protected:
  // A start on the compute lane that waits for that point.
  static LaneQueue::Start start_after(std::uint64_t value) {
    LaneQueue::Start start;
    start.request.lane = MUSTER_LANE_COMPUTE;
    start.request.value = 1;
    start.request.waits[0] = shm::make_point(kTimeline, value);
    return start;
  }
  RankLanes::Ready readiness(std::uint64_t value) const {
    const Cause* failed = nullptr;
    return lanes_.readiness(MUSTER_LANE_COMPUTE, start_after(value), &failed);
  }

  RankLanes lanes_{MUSTER_LANE_CLASSES, 4};
};

// Goal:   a start of the next client waits for a signal of its own, whatever the client before had signalled.
TEST_F(RankLanesTest, BeginEachClientWithTimelinesAtZero) {
  lanes_.attached();
  ASSERT_EQ(lanes_.signal(kTimeline, 7, Instant(1)), Code::kOk);
  ASSERT_EQ(readiness(7), RankLanes::Ready::kYes);
  lanes_.detached();
  lanes_.attached();
  EXPECT_EQ(readiness(1), RankLanes::Ready::kNo);
  EXPECT_EQ(lanes_.signal(kTimeline, 1, Instant(2)), Code::kOk) << "1 is more than 0";
  EXPECT_EQ(readiness(1), RankLanes::Ready::kYes);
  EXPECT_EQ(readiness(2), RankLanes::Ready::kNo);
}

// Goal:   the time of a start of the next client does not count from a signal of the client before.
TEST_F(RankLanesTest, CountNoSignalOfTheClientBefore) {
  lanes_.attached();
  ASSERT_EQ(lanes_.signal(kTimeline, 7, Instant(1'000)), Code::kOk);
  lanes_.detached();
  lanes_.attached();
  LaneQueue::Start start = start_after(1);
  start.request.timeout = Nanos(100);
  lanes_.lane(MUSTER_LANE_COMPUTE).push(start, Instant(10));
  EXPECT_EQ(lanes_.deadline(MUSTER_LANE_COMPUTE), Instant(110));
  ASSERT_EQ(lanes_.signal(kTimeline, 1, Instant(50)), Code::kOk);
  lanes_.lane(MUSTER_LANE_COMPUTE).next().request.waits[0] = shm::make_point(kTimeline, 2);
  EXPECT_EQ(lanes_.deadline(MUSTER_LANE_COMPUTE), Instant(150)) << "its own signal moves what it waits for";
}

TEST_F(RankLanesTest, RaiseTimelinesOnly) {
  lanes_.attached();
  EXPECT_EQ(lanes_.signal(kTimeline, 3, Instant(1)), Code::kOk);
  EXPECT_EQ(lanes_.signal(kTimeline, 3, Instant(2)), Code::kOk);
  EXPECT_EQ(lanes_.signal(kTimeline, 2, Instant(3)), Code::kBadArgument);
  EXPECT_EQ(lanes_.signal(shm::kClientTimelineFirst - 1, 1, Instant(3)), Code::kBadArgument);
  EXPECT_EQ(lanes_.signal(shm::kTimelinesMax - 1, 1, Instant(3)), Code::kOk);
  EXPECT_EQ(lanes_.signal(shm::kTimelinesMax, 1, Instant(3)), Code::kBadArgument);
}

}  // namespace
}  // namespace muster::scheduler
