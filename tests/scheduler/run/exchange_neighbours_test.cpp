// An EXCHANGE on one node waits for its neighbours alone, and fails with them.
#include "scheduler/run/graph.hpp"

#include "tests/scheduler/run/graph_fixture.hpp"

#include <string>

#include <gtest/gtest.h>

namespace muster::scheduler {
namespace {

using test::Stage;
using test::world_of;

constexpr std::uint32_t kWorld = 2;  // group of four_ranks(), where members have the numbers of their ranks
constexpr std::uint32_t kLane = MUSTER_LANE_HALO;

// Ranks in a line: each has faces with the next one on both sides.
class Neighbours : public ::testing::Test {
 protected:
  static std::vector<std::uint32_t> next_to(std::uint32_t rank) {
    if (rank == 0) return {1};
    if (rank == 3) return {2};
    return {rank - 1, rank + 1};
  }
  std::uint64_t start(std::uint32_t rank, Nanos timeout = std::chrono::seconds(60)) {
    return stage_.start(rank, kLane, stage_.exchange(kWorld, rank, next_to(rank)), {}, timeout);
  }
  std::uint64_t reached(std::uint32_t rank) { return stage_.points[{rank, kLane}]; }
  // Starts once more if the first start hears of a fault. Then all have met.
  void all_meet(const std::vector<std::uint32_t>& ranks) {
    for (const std::uint32_t rank : ranks) {
      reset(rank);
      stage_.stops.erase({rank, kLane});
      start(rank);
      if (!stage_.stops.contains({rank, kLane})) continue;
      reset(rank);
      start(rank);
    }
    stage_.finish_all();
    for (const std::uint32_t rank : ranks)
      EXPECT_EQ(reached(rank), stage_.graph.lanes()[Rank(rank)].lane(kLane).next_value() - 1) << rank;
  }
  void reset(std::uint32_t rank) { stage_.graph.reset_lane(Rank(rank), kLane, stage_.now); }

  Stage stage_{world_of(4), test::four_ranks()};
};

TEST_F(Neighbours, DoNotWaitForThoseBehindThem) {
  for (const std::uint32_t rank : {1u, 2u, 3u}) start(rank);
  stage_.finish_all();
  EXPECT_EQ(reached(1), 0u) << "it waits for rank 0";
  EXPECT_EQ(reached(2), 1u);
  EXPECT_EQ(reached(3), 1u);
  start(2);
  start(3);
  stage_.finish_all();
  EXPECT_EQ(reached(2), 1u) << "rank 1 is one behind";
  EXPECT_EQ(reached(3), 2u) << "it has met rank 2 again";
  start(0);
  stage_.finish_all();
  EXPECT_EQ(reached(0), 1u);
  EXPECT_EQ(reached(1), 1u);
  start(1);
  stage_.finish_all();
  EXPECT_EQ(reached(2), 2u);
  EXPECT_EQ(reached(1), 1u) << "rank 0 is one behind";
}

// Goal: each face moves in one step: that of the later one of its two members.
TEST_F(Neighbours, MeetOnce) {
  for (const std::uint32_t rank : {1u, 3u, 2u, 0u}) start(rank);
  ASSERT_EQ(stage_.launched.size(), 2u);
  const Step& middle = stage_.steps[stage_.launched[0]];
  ASSERT_EQ(middle.parts.size(), 3u);
  EXPECT_EQ(middle.active, 1u);
  EXPECT_EQ(middle.parts[0].rank, Rank(2));
  EXPECT_EQ(middle.parts[1].rank, Rank(1));
  EXPECT_TRUE(middle.parts[1].waits);
  EXPECT_EQ(middle.parts[2].rank, Rank(3));
  const Step& last = stage_.steps[stage_.launched[1]];
  ASSERT_EQ(last.parts.size(), 2u);
  EXPECT_EQ(last.parts[0].rank, Rank(0));
  EXPECT_EQ(last.parts[1].rank, Rank(1));
}

// Goal: those of one turn move their faces in one step, each number apart.
TEST_F(Neighbours, MeetTogetherWithinATurn) {
  stage_.meets = false;
  for (const std::uint32_t rank : {0u, 1u, 2u, 3u}) start(rank);
  EXPECT_TRUE(stage_.launched.empty());
  stage_.graph.meet(stage_.now);
  ASSERT_EQ(stage_.launched.size(), 1u);
  EXPECT_EQ(stage_.steps[stage_.launched[0]].active, 4u);
  stage_.finish_all();
  for (const std::uint32_t rank : {0u, 1u, 2u, 3u}) EXPECT_EQ(reached(rank), 1u);
  for (const std::uint32_t rank : {2u, 3u}) start(rank);
  stage_.graph.meet(stage_.now);
  stage_.finish_all();
  for (const std::uint32_t rank : {3u, 1u, 0u}) start(rank);  // rank 3 is one ahead
  stage_.graph.meet(stage_.now);
  ASSERT_EQ(stage_.launched.size(), 1u);
  const Step& step = stage_.steps[stage_.launched[0]];
  EXPECT_EQ(step.active, 2u);
  ASSERT_EQ(step.parts.size(), 3u);
  EXPECT_EQ(step.parts[2].rank, Rank(2));
  stage_.finish_all();
  EXPECT_EQ(reached(2), 2u);
  EXPECT_EQ(reached(3), 2u) << "rank 2 has not come again";
}

TEST_F(Neighbours, ThatStopBeforeTheyMeetHaveMetNobody) {
  stage_.meets = false;
  start(1);
  stage_.graph.give_up(Rank(1), kLane, {Code::kInterrupted, -1, "a signal"}, stage_.now);
  stage_.graph.meet(stage_.now);
  EXPECT_TRUE(stage_.launched.empty());
  EXPECT_EQ(stage_.retired_badly, 1u);
}

// Goal: a start is over when all steps of it are, in any order.
TEST_F(Neighbours, AreThroughWhenAllTheirFacesHaveMoved) {
  for (const std::uint32_t rank : {1u, 0u, 2u}) start(rank);
  ASSERT_EQ(stage_.launched.size(), 2u);
  std::swap(stage_.launched[0], stage_.launched[1]);
  stage_.finish_next();
  EXPECT_EQ(reached(1), 0u);
  stage_.finish_next();
  EXPECT_EQ(reached(1), 1u);
  EXPECT_EQ(stage_.retired_well, 2u) << "rank 2 waits for rank 3";
}

TEST_F(Neighbours, WithoutAnyAreThroughAtOnce) {
  stage_.start(2, kLane, stage_.exchange(kWorld, 2, {}));
  stage_.finish_all();
  EXPECT_EQ(reached(2), 1u);
  stage_.start(2, kLane, stage_.exchange(kWorld, 2, {2}));
  stage_.finish_all();
  EXPECT_EQ(reached(2), 2u);
}

// Goal: a member's faces with itself move when it comes, whether or not others are there.
TEST_F(Neighbours, MeetThemselvesAtOnce) {
  stage_.start(2, kLane, stage_.exchange(kWorld, 2, {2, 3}));
  ASSERT_EQ(stage_.launched.size(), 1u);
  const Step& alone = stage_.steps[stage_.launched[0]];
  ASSERT_EQ(alone.parts.size(), 1u);
  EXPECT_TRUE(alone.parts[0].waits);
  stage_.finish_all();
  EXPECT_EQ(reached(2), 0u);
  stage_.start(3, kLane, stage_.exchange(kWorld, 3, {2}));
  stage_.finish_all();
  EXPECT_EQ(reached(2), 1u);
  EXPECT_EQ(reached(3), 1u);
}

// ---- disagreements -----------------------------------------------------------------------------

TEST_F(Neighbours, HearThatTheirFacesDiffer) {
  start(2);
  stage_.start(3, kLane, stage_.exchange(kWorld, 3, {2}, 7));
  EXPECT_TRUE(stage_.stopped_with(2, kLane, Code::kMismatch));
  EXPECT_TRUE(stage_.stopped_with(3, kLane, Code::kMismatch));
  EXPECT_NE(stage_.stop_text(2, kLane).find("count from rank 2 to rank 3"), std::string::npos)
      << stage_.stop_text(2, kLane);
  start(0);
  EXPECT_TRUE(stage_.stopped_with(0, kLane, Code::kMismatch)) << "the place has ended";
}

TEST_F(Neighbours, HearThatOneDoesNotKnowTheOther) {
  start(1);
  stage_.start(2, kLane, stage_.exchange(kWorld, 2, {3}));
  EXPECT_TRUE(stage_.stopped_with(1, kLane, Code::kMismatch)) << "it waits";
  EXPECT_TRUE(stage_.stopped_with(2, kLane, Code::kMismatch));
}

TEST_F(Neighbours, HearThatOneHasGoneOnWithoutThem) {
  stage_.start(2, kLane, stage_.exchange(kWorld, 2, {}));
  stage_.finish_all();
  start(3);
  EXPECT_TRUE(stage_.stopped_with(3, kLane, Code::kMismatch));
  EXPECT_NE(stage_.stop_text(3, kLane).find("rank 2, which has ended this exchange without"),
            std::string::npos)
      << stage_.stop_text(3, kLane);
}

TEST_F(Neighbours, HearThatOneStartsSomethingElse) {
  start(3);
  stage_.start(2, kLane, stage_.collective(kWorld, 2, Stage::all_reduce(4)));
  start(1);
  EXPECT_TRUE(stage_.stopped_with(1, kLane, Code::kMismatch));
  EXPECT_TRUE(stage_.stopped_with(2, kLane, Code::kMismatch));
  EXPECT_TRUE(stage_.stopped_with(3, kLane, Code::kMismatch));
}

TEST_F(Neighbours, ThatAreThroughAreKnownToThoseWhoStartSomethingElse) {
  start(3);
  stage_.start(2, kLane, stage_.exchange(kWorld, 2, {3}));
  stage_.finish_all();
  ASSERT_EQ(reached(3), 1u);
  stage_.start(0, kLane, stage_.collective(kWorld, 0, Stage::all_reduce(4)));
  EXPECT_TRUE(stage_.stopped_with(0, kLane, Code::kMismatch));
}

// ---- losses ------------------------------------------------------------------------------------

TEST_F(Neighbours, NameWhomTheyMissAtTheirDeadline) {
  start(1, std::chrono::seconds(2));
  start(2);
  stage_.finish_all();
  stage_.pass(std::chrono::seconds(3));
  ASSERT_TRUE(stage_.stopped_with(1, kLane, Code::kTimeout));
  EXPECT_NE(stage_.stop_text(1, kLane).find("missing rank 0"), std::string::npos)
      << stage_.stop_text(1, kLane);
  EXPECT_EQ(stage_.stop_text(1, kLane).find("rank 3"), std::string::npos) << stage_.stop_text(1, kLane);
  EXPECT_TRUE(stage_.stopped_with(2, kLane, Code::kTimeout));
}

// Goal: whoever fails while a step for a neighbour uses its memory keeps it until that step is over.
TEST_F(Neighbours, KeepTheirMemoryForStepsInFlight) {
  start(1);
  start(2);
  ASSERT_EQ(stage_.launched.size(), 1u);
  stage_.graph.give_up(Rank(1), kLane, {Code::kInterrupted, -1, "a signal"}, stage_.now);
  EXPECT_TRUE(stage_.stopped_with(1, kLane, Code::kInterrupted));
  EXPECT_TRUE(stage_.stopped_with(2, kLane, Code::kInterrupted));
  EXPECT_EQ(stage_.retired_badly, 0u);
  EXPECT_EQ((stage_.quarantine[{1, kLane}]), 1u);
  EXPECT_EQ((stage_.quarantine[{2, kLane}]), 1u);
  stage_.finish_all();
  EXPECT_EQ(stage_.retired_badly, 2u);
  EXPECT_EQ((stage_.quarantine[{1, kLane}]), 0u);
  EXPECT_EQ((stage_.quarantine[{2, kLane}]), 0u);
  all_meet({0, 1, 2, 3});
}

TEST_F(Neighbours, ThatLeaveKeepTheirPlanForStepsInFlight) {
  start(1);
  start(2);
  stage_.graph.detached(Rank(1), "killed", stage_.now);
  EXPECT_TRUE(stage_.stopped_with(2, kLane, Code::kPeerLost));
  EXPECT_EQ(stage_.retired_badly + stage_.retired_well, 0u);
  stage_.graph.attached(Rank(1));
  stage_.finish_all();
  EXPECT_EQ(stage_.retired_badly, 2u);
}

TEST_F(Neighbours, GoOnFromOneNumberAfterAnAbsence) {
  start(2);
  start(3);
  stage_.finish_all();
  EXPECT_EQ(reached(3), 1u);
  stage_.graph.detached(Rank(0), "left", stage_.now);
  for (const std::uint32_t rank : {1u, 2u, 3u}) {
    start(rank);
    reset(rank);
  }
  stage_.finish_all();
  stage_.graph.absent(Rank(0), "its launcher says so", stage_.now);
  start(1);
  EXPECT_TRUE(stage_.stopped_with(1, kLane, Code::kPeerLost));
  reset(1);
  stage_.graph.attached(Rank(0));
  all_meet({0, 1, 2, 3});
}

// Goal: if a rank is called absent when a start has met some of its neighbours, that number is used up.
TEST_F(Neighbours, ThatHaveMetSomeEndThePlaceWhenOthersAreAbsent) {
  Stage stage(world_of(4), test::four_ranks(), {Rank(1)});
  const auto start = [&](std::uint32_t rank) {
    return stage.start(rank, kLane, stage.exchange(kWorld, rank, next_to(rank)));
  };
  start(2);
  start(3);
  stage.finish_all();
  ASSERT_EQ((stage.points[{3, kLane}]), 1u) << "rank 2 waits for rank 1";
  stage.graph.absent(Rank(1), "its launcher says so", stage.now);
  EXPECT_TRUE(stage.stopped_with(2, kLane, Code::kPeerLost));
  start(3);
  EXPECT_TRUE(stage.stopped_with(3, kLane, Code::kPeerLost));
  stage.graph.attached(Rank(1));
  for (const std::uint32_t rank : {0u, 1u, 2u, 3u}) {
    for (bool heard = true; heard; heard = stage.stops.contains({rank, kLane})) {
      stage.graph.reset_lane(Rank(rank), kLane, stage.now);
      stage.stops.erase({rank, kLane});
      start(rank);
    }
  }
  stage.finish_all();
  for (const std::uint32_t rank : {0u, 1u, 2u, 3u})
    EXPECT_EQ((stage.points[{rank, kLane}]), stage.graph.lanes()[Rank(rank)].lane(kLane).next_value() - 1)
        << rank;
}

// ---- reports -----------------------------------------------------------------------------------

TEST_F(Neighbours, AreReportedByTheNumberAtWhichTheyWait) {
  for (const std::uint32_t rank : {1u, 2u, 3u, 2u, 3u}) start(rank);
  stage_.finish_all();
  start(2);
  stage_.finish_all();
  const auto pending = stage_.graph.matches().pending();
  ASSERT_EQ(pending.size(), 2u);
  EXPECT_EQ(pending[0].number, 1u);
  ASSERT_EQ(pending[0].arrived.size(), 1u);
  EXPECT_EQ(pending[0].arrived[0].rank, Rank(1));
  EXPECT_EQ(pending[0].missing, std::vector{Rank(0)});
  EXPECT_EQ(pending[1].number, 2u);
  ASSERT_EQ(pending[1].arrived.size(), 1u);
  EXPECT_EQ(pending[1].arrived[0].rank, Rank(2));
  EXPECT_EQ(pending[1].missing, std::vector{Rank(1)});
}

}  // namespace
}  // namespace muster::scheduler
