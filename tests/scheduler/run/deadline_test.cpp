// The time that counts towards a start's deadline, and the time that does not.
#include "tests/scheduler/run/graph_fixture.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace muster::scheduler::test {
namespace {

using ::testing::HasSubstr;

constexpr Nanos kTimeout = std::chrono::milliseconds(500);
constexpr Nanos kMost = std::chrono::milliseconds(400);  // of it
constexpr std::uint64_t kNever = shm::make_point(shm::kClientTimelineFirst, 100);

class Deadline : public ::testing::Test {
 protected:
  std::uint64_t kernel(std::uint32_t lane, std::vector<std::uint64_t> waits = {}) {
    return stage.start(0, lane, stage.kernel(), std::move(waits), kTimeout);
  }
  std::uint64_t reduce(std::uint32_t rank, std::uint32_t lane) {
    return stage.start(rank, lane, stage.collective(2, rank, Stage::all_reduce(1)), {}, kTimeout);
  }
  // A step of all ranks that goes on in the network.
  void launch_outside() {
    stage.outside = true;
    for (const std::uint32_t rank : {0u, 1u, 2u, 3u}) reduce(rank, MUSTER_LANE_REDUCE);
    ASSERT_EQ(stage.launched.size(), 1u);
  }
  // The step survives its first deadline, because some of its data has moved.
  void launch_what_has_moved() {
    launch_outside();
    stage.pass(kMost);
    stage.moved = stage.now;
    stage.pass(kMost);
    EXPECT_TRUE(stage.stops.empty());
  }
  Stage stage{world_of(4), four_ranks()};
};

// Goal:   a healthy rank may submit more work than fits into one deadline.
// Method: kernels that each take most of it run one after the other; at the end a collective waits as long.
TEST_F(Deadline, IsNotForABacklogThatIsWorkedOff) {
  for (int i = 0; i < 30; ++i) kernel(MUSTER_LANE_COMPUTE);
  reduce(0, MUSTER_LANE_COMPUTE);
  for (int i = 0; i < 30; ++i) {
    stage.pass(kMost);
    stage.finish_next();
  }
  for (const std::uint32_t rank : {1u, 2u}) reduce(rank, MUSTER_LANE_COMPUTE);
  stage.pass(kMost);
  EXPECT_TRUE(stage.stops.empty());
  reduce(3, MUSTER_LANE_COMPUTE);
  EXPECT_EQ(stage.launched.size(), 1u);
}

// Goal:   nor for what is behind it on another lane, however long a chain that is.
TEST_F(Deadline, IsNotForABacklogOfALaneThatItWaitsFor) {
  std::uint64_t last = 0;
  for (int i = 0; i < 10; ++i) last = kernel(MUSTER_LANE_GATHER);
  last = kernel(MUSTER_LANE_REDUCE, {last});
  kernel(MUSTER_LANE_COMPUTE, {last});
  for (int i = 0; i < 12; ++i) {
    stage.pass(kMost);
    stage.finish_next();
  }
  EXPECT_TRUE(stage.stops.empty());
  EXPECT_EQ(stage.retired_well, 12u);
}

// Goal:   the verdict blames the rank whose own signal is missing.
TEST_F(Deadline, BlamesTheRankThatWaitsForItself) {
  stage.start(1, MUSTER_LANE_COMPUTE, stage.kernel(), {kNever}, kTimeout);
  stage.pass(kTimeout * 2);
  ASSERT_EQ(stage.stops.size(), 1u);
  const Cause& verdict = stage.stops.at({1, MUSTER_LANE_COMPUTE}).verdict;
  EXPECT_EQ(verdict.code, Code::kTimeout);
  EXPECT_EQ(verdict.culprit, 1);
  EXPECT_THAT(verdict.text, HasSubstr("client timeline"));
}

// Goal:   one kernel that takes longer than the deadline is no fault of what comes after it.
TEST_F(Deadline, IsNotForWhatTheDeviceWorksAt) {
  const std::uint64_t point = kernel(MUSTER_LANE_COMPUTE);
  reduce(0, MUSTER_LANE_COMPUTE);
  kernel(MUSTER_LANE_GATHER, {point});
  stage.pass(kTimeout * 10);
  EXPECT_TRUE(stage.stops.empty());
  EXPECT_EQ(stage.next_deadline(), std::nullopt);
}

// Goal:   nor does a start fall while the lane that it waits for has time left itself.
TEST_F(Deadline, LeavesTheLaneThatItWaitsForItsTime) {
  const std::uint64_t signalled = kernel(MUSTER_LANE_GATHER, {kNever});
  kernel(MUSTER_LANE_COMPUTE, {signalled});
  stage.pass(kMost);
  stage.graph.signal(Rank(0), shm::kClientTimelineFirst, 1, stage.now);
  stage.pass(kMost);
  EXPECT_TRUE(stage.stops.empty());
}

TEST_F(Deadline, BeginsAgainWhenTheClientRaisesTheTimelineThatIsWaitedFor) {
  kernel(MUSTER_LANE_COMPUTE, {kNever});
  for (std::uint64_t value = 1; value <= 5; ++value) {
    stage.pass(kMost);
    stage.graph.signal(Rank(0), shm::kClientTimelineFirst, value, stage.now);
  }
  EXPECT_TRUE(stage.stops.empty());
  stage.graph.signal(Rank(0), shm::kClientTimelineFirst, 5, stage.now + kMost);  // that is no progress
  stage.pass(kTimeout);
  ASSERT_TRUE(stage.stopped_with(0, MUSTER_LANE_COMPUTE, Code::kTimeout));
  EXPECT_THAT(stage.stop_text(0, MUSTER_LANE_COMPUTE), HasSubstr("to reach 100 (it is at 5)"));
}

// Goal:   work elsewhere is no progress of a start that nothing will ever release.
TEST_F(Deadline, IsNotPutOffByWorkThatIsNotWaitedFor) {
  kernel(MUSTER_LANE_COMPUTE, {kNever});
  for (int i = 0; i < 5; ++i) {
    kernel(MUSTER_LANE_GATHER);
    stage.pass(kTimeout / 5);
    stage.finish_next();
  }
  EXPECT_TRUE(stage.stopped_with(0, MUSTER_LANE_COMPUTE, Code::kTimeout));
}

// Goal:   two lanes that wait for each other are found, not waited for in turn.
TEST_F(Deadline, ComesForLanesThatWaitForEachOther) {
  const auto first = [](std::uint32_t lane) { return shm::make_point(lane, 1); };
  kernel(MUSTER_LANE_COMPUTE, {first(MUSTER_LANE_GATHER)});
  kernel(MUSTER_LANE_GATHER, {first(MUSTER_LANE_COMPUTE)});
  stage.pass(kTimeout);
  EXPECT_EQ(stage.stops.size(), 2u);
}

// Goal:   the cause is named before its consequence, in whatever order the lanes stand.
TEST_F(Deadline, FallsFirstOnWhatTheOtherLanesWaitFor) {
  const std::uint64_t reduced = reduce(0, MUSTER_LANE_REDUCE);
  kernel(MUSTER_LANE_COMPUTE, {reduced});
  stage.pass(kTimeout);
  EXPECT_TRUE(stage.stopped_with(0, MUSTER_LANE_REDUCE, Code::kTimeout));
  ASSERT_TRUE(stage.stopped_with(0, MUSTER_LANE_COMPUTE, Code::kDependency));
  EXPECT_THAT(stage.stop_text(0, MUSTER_LANE_COMPUTE), HasSubstr("missing ranks 1-3"));
}

// Goal:   the other end of a message that stands behind another one is not missing.
TEST_F(Deadline, SaysWhereTheOtherEndOfAMessageStands) {
  const auto message = [&](std::uint32_t rank, std::uint32_t lane, std::uint32_t tag) {
    const muster_op op = rank % 2 == 0 ? MUSTER_SEND : MUSTER_RECV;
    stage.start(rank, lane, stage.collective(rank / 2, rank, Stage::message(op, tag)), {}, kTimeout);
  };
  message(0, MUSTER_LANE_COPY, 7);
  message(1, MUSTER_LANE_HALO, 9);
  message(2, MUSTER_LANE_COPY, 7);
  for (const std::uint32_t tag : {9u, 8u, 7u}) message(3, MUSTER_LANE_HALO, tag);
  stage.pass(kTimeout);
  EXPECT_THAT(stage.stop_text(0, MUSTER_LANE_COPY),
              ::testing::AllOf(HasSubstr("group left: send of tag 7 on lane copy passed its deadline"),
                               HasSubstr("; missing rank 1")));
  EXPECT_THAT(stage.stop_text(2, MUSTER_LANE_COPY),
              HasSubstr("; rank 3 has its recv at position 3 of lane halo"));
}

// Goal:   an engine that was stopped, perhaps with everybody, blames nobody for that time.
TEST_F(Deadline, DoesNotCountTheTimeForWhichTheEngineWasStopped) {
  reduce(0, MUSTER_LANE_REDUCE);
  kernel(MUSTER_LANE_COMPUTE, {kNever});
  stage.pass(kMost);
  stage.now += kTimeout * 20;
  reduce(1, MUSTER_LANE_REDUCE);  // came while it was stopped
  stage.graph.tick(stage.now);
  EXPECT_TRUE(stage.stops.empty());
  stage.pass(kTimeout - kMost - Nanos(1));
  EXPECT_TRUE(stage.stops.empty());
  stage.pass(Nanos(1));
  EXPECT_TRUE(stage.stopped_with(0, MUSTER_LANE_REDUCE, Code::kTimeout));
  EXPECT_TRUE(stage.stopped_with(0, MUSTER_LANE_COMPUTE, Code::kTimeout));
}

// Goal:   nor is that time counted for a step that is launched and goes on in the network.
TEST_F(Deadline, DoesNotCountThatTimeForALaunchedStepEither) {
  launch_outside();
  stage.pass(kMost);
  stage.now += kTimeout * 20;
  stage.graph.tick(stage.now);
  stage.pass(kTimeout - kMost - Nanos(1));
  EXPECT_TRUE(stage.stops.empty());
  stage.pass(Nanos(1));
  for (const std::uint32_t rank : {0u, 1u, 2u, 3u})
    EXPECT_TRUE(stage.stopped_with(rank, MUSTER_LANE_REDUCE, Code::kTimeout)) << rank;
}

// Goal:   a long transfer is not given up while it moves, and is as soon as nothing has moved for so long.
TEST_F(Deadline, CountsFromTheLastMoveOfALaunchedStep) {
  launch_outside();
  for (int i = 0; i < 5; ++i) {
    stage.pass(kMost);
    stage.moved = stage.now;
  }
  stage.pass(kTimeout - Nanos(1));
  EXPECT_TRUE(stage.stops.empty());
  stage.pass(Nanos(1));
  EXPECT_TRUE(stage.stopped_with(0, MUSTER_LANE_REDUCE, Code::kTimeout));
}

// Goal:   a step that has failed and cannot give its memory back yet is given up at its first deadline, or at
//         once if that has passed.
TEST_F(Deadline, IsNotPutOffForALaunchedStepThatHasFailed) {
  launch_what_has_moved();
  stage.moved = {};
  stage.graph.tick(stage.now);
  EXPECT_TRUE(stage.stopped_with(0, MUSTER_LANE_REDUCE, Code::kTimeout));
}

// Goal:   an engine that was held up does not take that for a time in which nothing moved.
TEST_F(Deadline, CountsNoTimeForWhichTheEngineWasStoppedAgainstAStepThatMoves) {
  launch_what_has_moved();
  stage.now += kTimeout * 20;
  stage.graph.tick(stage.now);
  stage.pass(kTimeout - kMost - Nanos(1));
  EXPECT_TRUE(stage.stops.empty());
  stage.pass(Nanos(1));
  EXPECT_TRUE(stage.stopped_with(0, MUSTER_LANE_REDUCE, Code::kTimeout));
}

// Goal:   a step that fails in the network just as its deadline passes fails by its own cause.
TEST_F(Deadline, IsNotTheCauseOfALaunchedStepThatHasJustFailed) {
  stage.ends_when_asked = true;
  launch_outside();
  stage.pass(kTimeout);
  EXPECT_TRUE(stage.stops.empty());
  const Status missing = failure(Code::kTimeout, "rank 7 is missing");
  stage.finish_next(&missing);
  for (const std::uint32_t rank : {0u, 1u, 2u, 3u})
    EXPECT_THAT(stage.stop_text(rank, MUSTER_LANE_REDUCE), HasSubstr("rank 7 is missing")) << rank;
}

}  // namespace
}  // namespace muster::scheduler::test
