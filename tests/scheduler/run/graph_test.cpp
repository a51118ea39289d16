#include "scheduler/run/graph.hpp"

#include "tests/scheduler/run/graph_fixture.hpp"

#include <array>
#include <cstddef>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace muster::scheduler {
namespace {

using test::four_ranks;
using test::Stage;
using test::world_of;
using ::testing::HasSubstr;
using Lane = std::pair<std::uint32_t, std::uint32_t>;

TEST(Graph, ReachesThePointsOfALaneInOrder) {
  Stage stage(world_of(1), {});
  Plan* plan = stage.kernel();
  stage.start(0, MUSTER_LANE_COMPUTE, plan);
  stage.start(0, MUSTER_LANE_COMPUTE, plan);
  ASSERT_EQ(stage.launched.size(), 2u);
  stage.finish_next();
  EXPECT_EQ((stage.points[Lane{0, MUSTER_LANE_COMPUTE}]), 1u);
  stage.finish_next();
  EXPECT_EQ((stage.points[Lane{0, MUSTER_LANE_COMPUTE}]), 2u);
  EXPECT_EQ(stage.retired_well, 2u);
}

TEST(Graph, HandsOnlySoManyKernelsToAStreamAtATime) {
  Stage stage(world_of(1), {});
  Plan* plan = stage.kernel();
  for (int i = 0; i < 10; ++i) stage.start(0, MUSTER_LANE_COMPUTE, plan);
  EXPECT_EQ(stage.launched.size(), 4u);
  stage.finish_next();
  EXPECT_EQ(stage.launched.size(), 4u);
  stage.finish_all();
  EXPECT_EQ((stage.points[Lane{0, MUSTER_LANE_COMPUTE}]), 10u);
}

TEST(Graph, HoldsAStartUntilThePointsItWaitsForAreReached) {
  Stage stage(world_of(1), {});
  Plan* plan = stage.kernel();
  const auto copied = stage.start(0, MUSTER_LANE_COPY, plan);
  stage.start(0, MUSTER_LANE_COMPUTE, plan, {copied});
  ASSERT_EQ(stage.launched.size(), test::stream_waits() ? 2u : 1u);
  stage.finish_next();
  ASSERT_EQ(stage.launched.size(), 1u);
  stage.finish_next();
  EXPECT_EQ((stage.points[Lane{0, MUSTER_LANE_COMPUTE}]), 1u);
}

// Goal:   where a start begins its vectors travels with it, from its lane through the match into the step.
TEST(Graph, LaunchesEachStartWithItsOwnBases) {
  Stage stage(world_of(4), four_ranks());
  std::array<std::byte, 16> memory{};
  const auto start = [&](std::uint32_t rank, std::size_t source, std::size_t target) {
    const std::uint64_t value = stage.graph.lanes()[Rank(rank)].lane(MUSTER_LANE_SMALL).next_value();
    Request request{
        Rank(rank), MUSTER_LANE_SMALL, value, stage.collective(0, rank, Stage::all_reduce(1)), {}};
    request.timeout = std::chrono::seconds(60);
    request.bases = {&memory[source], &memory[target]};
    EXPECT_EQ(stage.graph.submit(request, stage.now), Code::kOk);
  };
  for (std::size_t i = 0; i < 3; ++i) start(0, i, i + 4);
  for (std::size_t i = 0; i < 3; ++i) start(1, i + 8, i + 12);
  for (std::size_t i = 0; i < 3; ++i) {
    ASSERT_EQ(stage.launched.size(), 1u);
    const std::vector<Step::Part>& parts = stage.steps.at(stage.launched.front()).parts;
    ASSERT_EQ(parts.size(), 2u);
    EXPECT_EQ(parts[0].bases.source, &memory[i]);
    EXPECT_EQ(parts[0].bases.target, &memory[i + 4]);
    EXPECT_EQ(parts[1].bases.source, &memory[i + 8]);
    EXPECT_EQ(parts[1].bases.target, &memory[i + 12]);
    stage.finish_next();
  }
}

TEST(Graph, WaitsForAClientTimeline) {
  Stage stage(world_of(1), {});
  const std::uint32_t timeline = shm::kClientTimelineFirst + 3;
  stage.start(0, MUSTER_LANE_COMPUTE, stage.kernel(), {shm::make_point(timeline, 7)});
  EXPECT_TRUE(stage.launched.empty());
  EXPECT_EQ(stage.graph.signal(Rank(0), timeline, 6, stage.now), Code::kOk);
  EXPECT_TRUE(stage.launched.empty());
  EXPECT_EQ(stage.graph.signal(Rank(0), timeline, 7, stage.now), Code::kOk);
  EXPECT_EQ(stage.launched.size(), 1u);
  EXPECT_EQ(stage.graph.signal(Rank(0), timeline, 5, stage.now), Code::kBadArgument);
}

TEST(Graph, RefusesValuesOutOfTurnAndUnknownTimelines) {
  Stage stage(world_of(1), {});
  Plan* plan = stage.kernel();
  EXPECT_EQ(stage.graph.submit({Rank(0), 0, 2, plan, {}, Instant(1)}, stage.now), Code::kBadArgument);
  stage.start(0, 0, plan, {shm::make_point(9, 1)});
  EXPECT_EQ(stage.last_code, Code::kBadArgument);
  stage.start(0, 0, plan, {shm::make_point(shm::kTimelinesMax, 1)});
  EXPECT_EQ(stage.last_code, Code::kBadArgument);
}

TEST(Graph, SaysBusyWhenALaneIsFull) {
  Stage stage({1, 4, 2}, {});
  Plan* plan = stage.kernel();
  for (int i = 0; i < 4; ++i) stage.start(0, 0, plan);
  EXPECT_TRUE(stage.graph.lanes()[Rank(0)].lane(0).full());
  stage.start(0, 0, plan);
  EXPECT_EQ(stage.last_code, Code::kBusy);
}

TEST(Graph, LaunchesACollectiveOnceAllMembersHaveArrived) {
  Stage stage(world_of(4), four_ranks());
  for (std::uint32_t rank = 0; rank < 4; ++rank) {
    EXPECT_TRUE(stage.launched.empty());
    stage.start(rank, MUSTER_LANE_REDUCE, stage.collective(2, rank, Stage::all_reduce(10)));
  }
  ASSERT_EQ(stage.launched.size(), 1u);
  const Step& step = stage.steps[stage.launched.front()];
  ASSERT_EQ(step.parts.size(), 4u);
  for (std::uint32_t rank = 0; rank < 4; ++rank) EXPECT_EQ(step.parts[rank].rank, Rank(rank));
  stage.finish_next();
  for (std::uint32_t rank = 0; rank < 4; ++rank)
    EXPECT_EQ((stage.points[Lane{rank, MUSTER_LANE_REDUCE}]), 1u);
}

TEST(Graph, FinishesGroupsThatRanksUseInDifferentOrder) {
  Stage stage(world_of(4), four_ranks());
  // Rank 0 takes the world first and then its pair; rank 1 the other way round, on other lanes.
  stage.start(0, MUSTER_LANE_ALLREDUCE, stage.collective(2, 0, Stage::all_reduce(1)));
  stage.start(0, MUSTER_LANE_REDUCE, stage.collective(0, 0, Stage::all_reduce(2)));
  stage.start(1, MUSTER_LANE_REDUCE, stage.collective(0, 1, Stage::all_reduce(2)));
  stage.start(1, MUSTER_LANE_ALLREDUCE, stage.collective(2, 1, Stage::all_reduce(1)));
  for (std::uint32_t rank = 2; rank < 4; ++rank)
    stage.start(rank, MUSTER_LANE_ALLREDUCE, stage.collective(2, rank, Stage::all_reduce(1)));
  EXPECT_EQ(stage.launched.size(), 2u);
  stage.finish_all();
  EXPECT_EQ(stage.retired_well, 6u);
}

TEST(Graph, NamesFieldValuesAndRanksWhenMembersDisagree) {
  Stage stage(world_of(4), four_ranks());
  stage.start(0, MUSTER_LANE_REDUCE, stage.collective(0, 0, Stage::all_reduce(4096)));
  stage.start(1, MUSTER_LANE_REDUCE, stage.collective(0, 1, Stage::all_reduce(4097)));
  EXPECT_TRUE(stage.launched.empty());
  for (std::uint32_t rank = 0; rank < 2; ++rank) {
    ASSERT_TRUE(stage.stopped_with(rank, MUSTER_LANE_REDUCE, Code::kMismatch));
    EXPECT_THAT(stage.stop_text(rank, MUSTER_LANE_REDUCE),
                HasSubstr("ranks disagree on count: 4096 at rank 0 and 4097 at rank 1;"));
  }
}

TEST(Graph, FailsWhatWaitsForAFailedLaneWithTheSameCause) {
  Stage stage(world_of(4), four_ranks());
  const auto gathered = stage.start(0, MUSTER_LANE_GATHER, stage.collective(0, 0, Stage::all_reduce(1)));
  stage.start(0, MUSTER_LANE_COMPUTE, stage.kernel(), {gathered});
  stage.start(1, MUSTER_LANE_GATHER, stage.collective(0, 1, Stage::all_reduce(2)));
  ASSERT_TRUE(stage.stopped_with(0, MUSTER_LANE_COMPUTE, Code::kDependency));
  EXPECT_THAT(stage.stop_text(0, MUSTER_LANE_COMPUTE), HasSubstr("disagree"));
}

// Goal:   a session's end is no failure that a lane gets over, so what waited is not told to reset one.
TEST(Graph, EndsWhatWaitsForWhatTheSessionsEndStopped) {
  for (const Code end : {Code::kJobEnded, Code::kDaemonLost}) {
    Stage stage(world_of(4), four_ranks());
    const auto gathered = stage.start(0, MUSTER_LANE_GATHER, stage.collective(0, 0, Stage::all_reduce(1)));
    const auto computed = stage.start(0, MUSTER_LANE_COMPUTE, stage.kernel(), {gathered});
    stage.start(0, MUSTER_LANE_COPY, stage.kernel(), {computed});
    stage.graph.abort({GroupId(0)}, {end, -1, "this is the end"}, stage.now);
    ASSERT_TRUE(stage.stopped_with(0, MUSTER_LANE_COMPUTE, end));
    ASSERT_TRUE(stage.stopped_with(0, MUSTER_LANE_COPY, end));
    EXPECT_THAT(stage.stop_text(0, MUSTER_LANE_COPY), HasSubstr("this is the end"));
  }
}

TEST(Graph, BlamesExactlyTheMissingRanksAtTheDeadline) {
  Stage stage(world_of(4), four_ranks());
  stage.start(0, MUSTER_LANE_SMALL, stage.collective(2, 0, Stage::all_reduce(1)), {},
              std::chrono::milliseconds(500));
  stage.start(2, MUSTER_LANE_SMALL, stage.collective(2, 2, Stage::all_reduce(1)), {},
              std::chrono::milliseconds(900));
  EXPECT_EQ(stage.next_deadline(), Instant(std::chrono::milliseconds(500)));
  stage.now = std::chrono::milliseconds(499);
  stage.graph.tick(stage.now);
  EXPECT_TRUE(stage.stops.empty());
  stage.now = std::chrono::milliseconds(500);
  stage.graph.tick(stage.now);
  for (const std::uint32_t rank : {0u, 2u}) {
    ASSERT_TRUE(stage.stopped_with(rank, MUSTER_LANE_SMALL, Code::kTimeout));
    EXPECT_THAT(stage.stop_text(rank, MUSTER_LANE_SMALL), HasSubstr("missing ranks 1 3"));
  }
  // A late rank gets the same verdict, never a late success.
  stage.start(1, MUSTER_LANE_SMALL, stage.collective(2, 1, Stage::all_reduce(1)));
  EXPECT_TRUE(stage.stopped_with(1, MUSTER_LANE_SMALL, Code::kTimeout));
  EXPECT_TRUE(stage.launched.empty());
}

TEST(Graph, SaysWhichPointAnOverdueStartWaitedFor) {
  Stage stage(world_of(1), {});
  stage.start(0, MUSTER_LANE_COMPUTE, stage.kernel(), {shm::make_point(shm::kClientTimelineFirst, 3)},
              Nanos(10));
  stage.now = Nanos(11);
  stage.graph.tick(stage.now);
  EXPECT_THAT(stage.stop_text(0, MUSTER_LANE_COMPUTE),
              HasSubstr("client timeline 64 to reach 3 (it is at 0)"));
}

TEST(Graph, TellsTheSurvivorsAtOnceWhenARankDies) {
  Stage stage(world_of(4), four_ranks());
  stage.start(0, MUSTER_LANE_REDUCE, stage.collective(2, 0, Stage::all_reduce(1)));
  stage.start(3, MUSTER_LANE_REDUCE, stage.collective(2, 3, Stage::all_reduce(1)));
  stage.graph.detached(Rank(3), "rank 3 (pid 77) was killed by signal 9", stage.now);
  ASSERT_TRUE(stage.stopped_with(0, MUSTER_LANE_REDUCE, Code::kPeerLost));
  EXPECT_EQ((stage.stops[Lane{0, MUSTER_LANE_REDUCE}].verdict.culprit), 3);
  EXPECT_THAT(stage.stop_text(0, MUSTER_LANE_REDUCE), HasSubstr("pid 77"));
  stage.start(1, MUSTER_LANE_REDUCE, stage.collective(2, 1, Stage::all_reduce(1)));
  EXPECT_TRUE(stage.stopped_with(1, MUSTER_LANE_REDUCE, Code::kPeerLost));
  // A group without the dead rank goes on.
  stage.start(0, MUSTER_LANE_SMALL, stage.collective(0, 0, Stage::all_reduce(1)));
  stage.start(1, MUSTER_LANE_SMALL, stage.collective(0, 1, Stage::all_reduce(1)));
  EXPECT_EQ(stage.launched.size(), 1u);
}

TEST(Graph, LetsAGroupWorkAgainAfterReattachAndReset) {
  Stage stage(world_of(2), {{"pair", {Rank(0), Rank(1)}}});
  stage.start(0, MUSTER_LANE_REDUCE, stage.collective(0, 0, Stage::all_reduce(1)));
  stage.graph.detached(Rank(1), "gone", stage.now);
  ASSERT_TRUE(stage.stopped_with(0, MUSTER_LANE_REDUCE, Code::kPeerLost));
  stage.graph.attached(Rank(1));
  stage.start(1, MUSTER_LANE_REDUCE, stage.collective(0, 1, Stage::all_reduce(1)));
  EXPECT_EQ(stage.stops.count(Lane{1, MUSTER_LANE_REDUCE}), 0u) << "the newcomer has lost nobody";
  stage.graph.reset_lane(Rank(0), MUSTER_LANE_REDUCE, stage.now);
  EXPECT_EQ((stage.resumes[Lane{0, MUSTER_LANE_REDUCE}]), 1u);
  stage.start(0, MUSTER_LANE_REDUCE, stage.collective(0, 0, Stage::all_reduce(1)));
  ASSERT_EQ(stage.launched.size(), 1u);
  stage.finish_next();
  EXPECT_EQ((stage.points[Lane{0, MUSTER_LANE_REDUCE}]), 2u);
}

TEST(Graph, TellsASurvivorOnceAlsoIfTheDeadRankIsBackAlready) {
  Stage stage(world_of(2), {{"pair", {Rank(0), Rank(1)}}});
  stage.graph.detached(Rank(1), "gone", stage.now);
  stage.graph.attached(Rank(1));
  stage.start(0, MUSTER_LANE_REDUCE, stage.collective(0, 0, Stage::all_reduce(1)));
  ASSERT_TRUE(stage.stopped_with(0, MUSTER_LANE_REDUCE, Code::kPeerLost)) << "never a late success";
  stage.graph.reset_lane(Rank(0), MUSTER_LANE_REDUCE, stage.now);
  // The reset acknowledged this death on every lane.
  stage.stops.clear();
  stage.start(0, MUSTER_LANE_GATHER, stage.collective(0, 0, Stage::all_reduce(1)));
  EXPECT_TRUE(stage.stops.empty());
}

// Goal:   a loss is heard of as such, though another member ended the group since to get away from it.
// Method: rank 3 dies while rank 1 computes; rank 0 hears, aborts the group and goes on; then rank 1 comes.
TEST(Graph, TellsOfALossAlsoWhenTheGroupWasAbortedSince) {
  Stage stage(world_of(4), four_ranks());
  stage.start(0, MUSTER_LANE_REDUCE, stage.collective(2, 0, Stage::all_reduce(1)));
  stage.graph.detached(Rank(3), "rank 3 (pid 77) died", stage.now);
  stage.graph.abort({GroupId(2)}, {Code::kAborted, 0, "rank 0 aborted group world"}, stage.now);
  stage.start(1, MUSTER_LANE_REDUCE, stage.collective(2, 1, Stage::all_reduce(1)));
  ASSERT_TRUE(stage.stopped_with(1, MUSTER_LANE_REDUCE, Code::kPeerLost));
  EXPECT_THAT(stage.stop_text(1, MUSTER_LANE_REDUCE), HasSubstr("pid 77"));
  // That was all: the abort belongs to what it has heard of.
  stage.stops.clear();
  stage.graph.reset_lane(Rank(1), MUSTER_LANE_REDUCE, stage.now);
  stage.start(1, MUSTER_LANE_REDUCE, stage.collective(2, 1, Stage::all_reduce(1)));
  EXPECT_TRUE(stage.stops.empty());
}

TEST(Graph, TellsOfALossAfterAnAbortBeforeIt) {
  Stage stage(world_of(4), four_ranks());
  stage.graph.abort({GroupId(2)}, {Code::kAborted, 0, "rank 0 aborted group world"}, stage.now);
  stage.graph.detached(Rank(3), "rank 3 (pid 77) died", stage.now);
  for (const Code code : {Code::kAborted, Code::kPeerLost}) {
    stage.start(1, MUSTER_LANE_REDUCE, stage.collective(2, 1, Stage::all_reduce(1)));
    ASSERT_TRUE(stage.stopped_with(1, MUSTER_LANE_REDUCE, code));
    stage.graph.reset_lane(Rank(1), MUSTER_LANE_REDUCE, stage.now);
  }
}

// Goal:   a rank that missed two losses gets both, in turn, and waits for neither until a deadline.
// Method: ranks 3 and 2 die; rank 1 comes, resets its lane and comes again.
TEST(Graph, TellsOfEachLostMemberInTurn) {
  Stage stage(world_of(4), four_ranks());
  stage.graph.detached(Rank(3), "rank 3 died", stage.now);
  stage.graph.detached(Rank(2), "rank 2 died", stage.now);
  stage.start(1, MUSTER_LANE_REDUCE, stage.collective(2, 1, Stage::all_reduce(1)));
  EXPECT_THAT(stage.stop_text(1, MUSTER_LANE_REDUCE), HasSubstr("rank 3 died"));
  stage.graph.reset_lane(Rank(1), MUSTER_LANE_REDUCE, stage.now);
  stage.stops.clear();
  stage.start(1, MUSTER_LANE_REDUCE, stage.collective(2, 1, Stage::all_reduce(1)));
  ASSERT_TRUE(stage.stopped_with(1, MUSTER_LANE_REDUCE, Code::kPeerLost));
  EXPECT_THAT(stage.stop_text(1, MUSTER_LANE_REDUCE), HasSubstr("rank 2 died"));
}

// Goal:   a whole trainer that is started again does not hear of the deaths before its time.
// Method: rank 1 dies; rank 0 leaves and comes back before rank 1 does, and waits for it.
TEST(Graph, KeepsOldDeathsFromANewTrainer) {
  Stage stage(world_of(2), {{"pair", {Rank(0), Rank(1)}}});
  stage.graph.detached(Rank(1), "gone", stage.now);
  stage.graph.detached(Rank(0), "left", stage.now);
  stage.graph.attached(Rank(0));
  stage.start(0, MUSTER_LANE_REDUCE, stage.collective(0, 0, Stage::all_reduce(1)));
  EXPECT_TRUE(stage.stops.empty());
  stage.graph.attached(Rank(1));
  stage.start(1, MUSTER_LANE_REDUCE, stage.collective(0, 1, Stage::all_reduce(1)));
  EXPECT_EQ(stage.launched.size(), 1u);
}

// Goal:   a chain of departures leaves no rank waiting, and all ranks get the rank at its root.
// Method: rank 1 dies; rank 0, which shares a group with it, hears and leaves in order; rank 2 shares one
//         with rank 0 alone and comes to it after both have gone.
TEST(Graph, PassesTheRootOfAChainOfDeparturesOn) {
  Stage stage(world_of(3), {{"first", {Rank(0), Rank(1)}}, {"second", {Rank(0), Rank(2)}}});
  stage.start(0, MUSTER_LANE_SMALL, stage.collective(0, 0, Stage::all_reduce(1)));
  stage.graph.detached(Rank(1), "rank 1 (pid 7) died", stage.now);
  ASSERT_TRUE(stage.stopped_with(0, MUSTER_LANE_SMALL, Code::kPeerLost));
  stage.graph.detached(Rank(0), "rank 0 (pid 6) detached", stage.now);
  stage.start(2, MUSTER_LANE_SMALL, stage.collective(1, 2, Stage::all_reduce(1)));
  ASSERT_TRUE(stage.stopped_with(2, MUSTER_LANE_SMALL, Code::kPeerLost));
  EXPECT_THAT(stage.stop_text(2, MUSTER_LANE_SMALL), HasSubstr("rank 1 (pid 7) died"));
  EXPECT_EQ((stage.stops[Lane{2, MUSTER_LANE_SMALL}].verdict.culprit), 1);
}

TEST(Graph, NamesTheLeaverWhereNoFailureCameBefore) {
  Stage stage(world_of(2), {{"pair", {Rank(0), Rank(1)}}});
  stage.graph.detached(Rank(0), "rank 0 (pid 6) detached", stage.now);
  stage.start(1, MUSTER_LANE_SMALL, stage.collective(0, 1, Stage::all_reduce(1)));
  ASSERT_TRUE(stage.stopped_with(1, MUSTER_LANE_SMALL, Code::kPeerLost));
  EXPECT_THAT(stage.stop_text(1, MUSTER_LANE_SMALL), HasSubstr("rank 0 (pid 6) detached"));
}

// Goal:   no rank waits for a rank that will never come, whenever the others come.
// Method: rank 1 is absent; rank 0 waits already, rank 2 attaches later; then rank 1 comes after all.
TEST(Graph, WaitsForNoRankThatIsKnownNotToCome) {
  Stage stage(world_of(3), {{"world", {Rank(0), Rank(1), Rank(2)}}, {"ends", {Rank(0), Rank(2)}}});
  stage.graph.detached(Rank(1), "never here", stage.now);
  stage.graph.attached(Rank(0));
  stage.start(0, MUSTER_LANE_SMALL, stage.collective(0, 0, Stage::all_reduce(1)));
  EXPECT_TRUE(stage.stops.empty());
  stage.graph.absent(Rank(1), "rank 1 exited with code 3", stage.now);
  ASSERT_TRUE(stage.stopped_with(0, MUSTER_LANE_SMALL, Code::kPeerLost));
  stage.graph.attached(Rank(2));
  stage.start(2, MUSTER_LANE_SMALL, stage.collective(0, 2, Stage::all_reduce(1)));
  ASSERT_TRUE(stage.stopped_with(2, MUSTER_LANE_SMALL, Code::kPeerLost));
  EXPECT_THAT(stage.stop_text(2, MUSTER_LANE_SMALL), HasSubstr("exited with code 3"));
  stage.start(0, MUSTER_LANE_GATHER, stage.collective(1, 0, Stage::all_reduce(1)));
  stage.start(2, MUSTER_LANE_GATHER, stage.collective(1, 2, Stage::all_reduce(1)));
  EXPECT_EQ(stage.launched.size(), 1u) << "a group without it works";
  stage.finish_all();
  stage.graph.attached(Rank(1));
  for (const std::uint32_t rank : {0u, 2u}) stage.graph.reset_lane(Rank(rank), MUSTER_LANE_SMALL, stage.now);
  for (const std::uint32_t rank : {0u, 1u, 2u})
    stage.start(rank, MUSTER_LANE_SMALL, stage.collective(0, rank, Stage::all_reduce(1)));
  EXPECT_EQ(stage.launched.size(), 1u);
}

// Goal:   the launcher's word may come before the engine has seen the rank leave.
TEST(Graph, TakesARankForAbsentOnceItHasLeft) {
  Stage stage(world_of(3), {{"world", {Rank(0), Rank(1), Rank(2)}}});
  stage.graph.detached(Rank(2), "not yet here", stage.now);
  stage.graph.absent(Rank(1), "rank 1 exited with code 3", stage.now);
  EXPECT_TRUE(stage.stops.empty());
  stage.graph.detached(Rank(1), "rank 1 (pid 7) detached", stage.now);
  stage.graph.attached(Rank(2));
  stage.start(2, MUSTER_LANE_SMALL, stage.collective(0, 2, Stage::all_reduce(1)));
  EXPECT_THAT(stage.stop_text(2, MUSTER_LANE_SMALL), HasSubstr("exited with code 3"));
}

TEST(Graph, NamesTheRootAlsoForARankThatLeftBecauseOfItAndIsAbsent) {
  Stage stage(world_of(3), {{"first", {Rank(0), Rank(1)}}, {"second", {Rank(1), Rank(2)}}});
  stage.graph.detached(Rank(2), "not yet here", stage.now);
  stage.graph.detached(Rank(0), "rank 0 (pid 6) died", stage.now);
  stage.start(1, MUSTER_LANE_SMALL, stage.collective(0, 1, Stage::all_reduce(1)));
  ASSERT_TRUE(stage.stopped_with(1, MUSTER_LANE_SMALL, Code::kPeerLost));
  stage.graph.detached(Rank(1), "rank 1 (pid 7) detached", stage.now);
  stage.graph.absent(Rank(1), "rank 1 exited with code 3", stage.now);
  stage.graph.attached(Rank(2));
  stage.start(2, MUSTER_LANE_SMALL, stage.collective(1, 2, Stage::all_reduce(1)));
  EXPECT_THAT(stage.stop_text(2, MUSTER_LANE_SMALL), HasSubstr("rank 0 (pid 6) died"));
}

TEST(Graph, ForgetsAbsencesWhenEverybodyHasLeft) {
  Stage stage(world_of(2), {{"pair", {Rank(0), Rank(1)}}});
  stage.graph.detached(Rank(1), "gone", stage.now);
  stage.graph.absent(Rank(1), "rank 1 exited with code 3", stage.now);
  stage.graph.detached(Rank(0), "gone", stage.now);
  stage.graph.attached(Rank(0));
  stage.start(0, MUSTER_LANE_SMALL, stage.collective(0, 0, Stage::all_reduce(1)));
  EXPECT_TRUE(stage.stops.empty()) << "a new trainer starts";
}

// Goal:   the cause of a rank's departure from the last run does not explain its absence from the next.
TEST(Graph, ForgetsWhyRanksLeftWhenAllAreExpectedAnew) {
  Stage stage(world_of(3), {{"world", {Rank(0), Rank(1), Rank(2)}}});
  stage.graph.detached(Rank(0), "rank 0 (pid 6) died", stage.now);
  for (const std::uint32_t rank : {1u, 2u}) {
    stage.start(rank, MUSTER_LANE_SMALL, stage.collective(0, rank, Stage::all_reduce(1)));
    ASSERT_TRUE(stage.stopped_with(rank, MUSTER_LANE_SMALL, Code::kPeerLost));
  }
  for (const std::uint32_t rank : {1u, 2u}) stage.graph.detached(Rank(rank), "detached", stage.now);
  stage.graph.absences().expect_all();
  stage.graph.attached(Rank(0));
  stage.start(0, MUSTER_LANE_SMALL, stage.collective(0, 0, Stage::all_reduce(1)));
  stage.graph.absent(Rank(1), "rank 1 exited with code 3", stage.now);
  EXPECT_THAT(stage.stop_text(0, MUSTER_LANE_SMALL), HasSubstr("rank 1 exited with code 3"));
}

// Goal:   the missing rank is named also by a start that waits for the collective on another lane.
TEST(Graph, FollowsAnOverdueStartToTheMissingRank) {
  Stage stage(world_of(2), {{"pair", {Rank(0), Rank(1)}}});
  const auto reduced =
      stage.start(0, MUSTER_LANE_SMALL, stage.collective(0, 0, Stage::all_reduce(1)), {}, Nanos(10));
  stage.start(0, MUSTER_LANE_COMPUTE, stage.kernel(), {reduced}, Nanos(5));
  stage.now = Nanos(6);
  stage.graph.tick(stage.now);
  EXPECT_THAT(stage.stop_text(0, MUSTER_LANE_COMPUTE), HasSubstr("waiting for lane small"));
  EXPECT_THAT(stage.stop_text(0, MUSTER_LANE_COMPUTE), HasSubstr("missing rank 1"));
  EXPECT_EQ((stage.stops[Lane{0, MUSTER_LANE_COMPUTE}].verdict.culprit), 1);
}

// Goal:   a point of a failure is never taken for reached, whatever came after it.
// Method: lane reduce fails twice and is reset twice; then compute waits for a point of the first failure.
TEST(Graph, RemembersThePointsOfFailuresThatWereReset) {
  Stage stage(world_of(2), {{"pair", {Rank(0), Rank(1)}}});
  const auto lost = stage.start(0, MUSTER_LANE_REDUCE, stage.collective(0, 0, Stage::all_reduce(1)));
  for (int failure = 0; failure < 100; ++failure) {
    stage.graph.abort({GroupId(0)}, {Code::kAborted, 1, "aborted"}, stage.now);
    stage.graph.reset_lane(Rank(0), MUSTER_LANE_REDUCE, stage.now);
    stage.start(0, MUSTER_LANE_REDUCE, stage.collective(0, 0, Stage::all_reduce(1)));
  }
  stage.start(1, MUSTER_LANE_REDUCE, stage.collective(0, 1, Stage::all_reduce(1)));
  stage.start(1, MUSTER_LANE_REDUCE, stage.collective(0, 1, Stage::all_reduce(1)));
  stage.finish_all();
  stage.start(0, MUSTER_LANE_COMPUTE, stage.kernel(), {lost});
  EXPECT_TRUE(stage.stopped_with(0, MUSTER_LANE_COMPUTE, Code::kDependency));
}

// Goal:   a client that comes and goes faster than its work runs fills no stream, and no start is lost.
// Method: one rank, attached over and over; each time it fills its lanes with kernels that do not finish.
TEST(Graph, CountsWhatFormerClientsHaveLeftRunningOnALane) {
  Stage stage(world_of(1), {{"alone", {Rank(0)}}});
  for (int life = 0; life < 3; ++life) {
    for (std::uint32_t lane = 0; lane < MUSTER_LANE_CLASSES; ++lane)
      for (int k = 0; k < 10; ++k) stage.start(0, lane, stage.kernel());
    stage.graph.detached(Rank(0), "gone", stage.now);
    stage.graph.attached(Rank(0));
  }
  stage.start(0, MUSTER_LANE_COMPUTE, stage.kernel());
  EXPECT_EQ(stage.launched.size(), std::size_t{MUSTER_LANE_CLASSES} * 4) << "as many as there are places";
  stage.finish_all();
  EXPECT_EQ(stage.graph.lanes()[Rank(0)].lane(MUSTER_LANE_COMPUTE).reached(), 1u);
}

// Goal:   one collective of a rank's lane at a time also over its clients, so that a group's transport needs
//         one place for each.
TEST(Graph, HoldsACollectiveWhileOneOfTheFormerClientRuns) {
  Stage stage(world_of(2), {{"pair", {Rank(0), Rank(1)}}});
  for (int life = 0; life < 3; ++life) {
    for (const std::uint32_t rank : {0u, 1u}) {
      stage.start(rank, MUSTER_LANE_HALO, stage.collective(0, rank, Stage::all_reduce(1)));
      EXPECT_EQ(stage.graph.lanes()[Rank(rank)].lane(MUSTER_LANE_HALO).failures().stopped(), false);
    }
    EXPECT_EQ(stage.launched.size(), 1u) << "life " << life;
    for (const std::uint32_t rank : {0u, 1u}) stage.graph.detached(Rank(rank), "gone", stage.now);
    for (const std::uint32_t rank : {0u, 1u}) stage.graph.attached(Rank(rank));
  }
  for (const std::uint32_t rank : {0u, 1u})
    stage.start(rank, MUSTER_LANE_HALO, stage.collective(0, rank, Stage::all_reduce(1)));
  EXPECT_EQ(stage.launched.size(), 1u);
  stage.finish_next();
  EXPECT_EQ(stage.launched.size(), 1u) << "the place is free";
  stage.finish_all();
  for (const std::uint32_t rank : {0u, 1u})
    EXPECT_EQ(stage.graph.lanes()[Rank(rank)].lane(MUSTER_LANE_HALO).reached(), 1u);
}

TEST(Graph, KeepsADeadRanksMemoryUntilItsWorkHasRun) {
  Stage stage(world_of(2), {{"pair", {Rank(0), Rank(1)}}});
  stage.start(0, 0, stage.collective(0, 0, Stage::all_reduce(1)));
  stage.start(1, 0, stage.collective(0, 1, Stage::all_reduce(1)));
  ASSERT_EQ(stage.launched.size(), 1u);
  stage.graph.detached(Rank(1), "gone", stage.now);
  EXPECT_EQ(stage.graph.steps().in_flight(), 1u);
  stage.graph.attached(Rank(1));
  stage.finish_next();
  EXPECT_EQ(stage.graph.steps().in_flight(), 0u);
  EXPECT_EQ((stage.points[Lane{0, 0}]), 1u) << "the survivor's result is whole";
  EXPECT_EQ(stage.graph.lanes()[Rank(1)].lane(0).reached(), 0u) << "the newcomer's lane starts at 0";
}

TEST(Graph, PairsSendsAndReceivesAcrossLanesInOrder) {
  Stage stage(world_of(2), {{"pair", {Rank(0), Rank(1)}}});
  const auto message = [&](muster_op op, std::int32_t from, std::int32_t to, std::uint64_t count) {
    Collective c;
    c.op = op;
    c.dtype = MUSTER_U8;
    c.root = from;
    c.receiver = to;
    c.count = count;
    return c;
  };
  stage.start(0, MUSTER_LANE_HALO, stage.collective(0, 0, message(MUSTER_SEND, 0, 1, 5)));
  stage.start(1, MUSTER_LANE_HALO, stage.collective(0, 1, message(MUSTER_SEND, 1, 0, 6)));
  EXPECT_TRUE(stage.launched.empty());
  stage.start(0, MUSTER_LANE_SMALL, stage.collective(0, 0, message(MUSTER_RECV, 1, 0, 6)));
  stage.start(1, MUSTER_LANE_SMALL, stage.collective(0, 1, message(MUSTER_RECV, 0, 1, 5)));
  EXPECT_EQ(stage.launched.size(), 2u);
  stage.finish_all();
  EXPECT_EQ(stage.retired_well, 4u);
  stage.start(0, MUSTER_LANE_HALO, stage.collective(0, 0, message(MUSTER_SEND, 0, 1, 5)));
  stage.start(1, MUSTER_LANE_SMALL, stage.collective(0, 1, message(MUSTER_RECV, 0, 1, 9)));
  EXPECT_THAT(stage.stop_text(1, MUSTER_LANE_SMALL), HasSubstr("count: 5 at rank 0 and 9 at rank 1"));
}

// Goal:   a receive that waits for one tag holds up neither another tag nor what else comes on other lanes.
TEST(Graph, PairsSendsAndReceivesByTag) {
  Stage stage(world_of(2), {{"pair", {Rank(0), Rank(1)}}});
  stage.start(1, MUSTER_LANE_HALO, stage.collective(0, 1, Stage::message(MUSTER_RECV, 7)));
  stage.start(1, MUSTER_LANE_COPY, stage.collective(0, 1, Stage::message(MUSTER_RECV, 8)));
  for (const std::uint32_t rank : {0u, 1u})
    stage.start(rank, MUSTER_LANE_SMALL, stage.collective(0, rank, Stage::all_reduce(1)));
  EXPECT_EQ(stage.launched.size(), 1u) << "what is on another lane goes on";
  stage.start(0, MUSTER_LANE_HALO, stage.collective(0, 0, Stage::message(MUSTER_SEND, 8)));
  EXPECT_EQ(stage.launched.size(), 2u);
  stage.finish_all();
  EXPECT_EQ((stage.points[Lane{1, MUSTER_LANE_COPY}]), 1u);
  EXPECT_EQ((stage.points[Lane{1, MUSTER_LANE_HALO}]), 0u);
  stage.start(0, MUSTER_LANE_HALO, stage.collective(0, 0, Stage::message(MUSTER_SEND, 7)));
  stage.finish_all();
  EXPECT_EQ(stage.retired_well, 6u);
}

TEST(Graph, AbortsEverybodyWhoWaitsInAGroup) {
  Stage stage(world_of(4), four_ranks());
  stage.start(0, MUSTER_LANE_REDUCE, stage.collective(2, 0, Stage::all_reduce(1)));
  stage.start(1, MUSTER_LANE_GATHER, stage.collective(2, 1, Stage::all_reduce(1)));
  stage.graph.abort({GroupId(2)}, {Code::kAborted, 2, "rank 2 aborted group world"}, stage.now);
  EXPECT_TRUE(stage.stopped_with(0, MUSTER_LANE_REDUCE, Code::kAborted));
  EXPECT_TRUE(stage.stopped_with(1, MUSTER_LANE_GATHER, Code::kAborted));
}

TEST(Graph, CountsTheTimeThatComputeWaitsForCommunication) {
  Stage stage(world_of(2), {{"pair", {Rank(0), Rank(1)}}});
  const auto gathered = stage.start(0, MUSTER_LANE_GATHER, stage.collective(0, 0, Stage::all_reduce(1)));
  stage.start(0, MUSTER_LANE_COMPUTE, stage.kernel(), {gathered});
  stage.now = Nanos(700);
  stage.start(1, MUSTER_LANE_GATHER, stage.collective(0, 1, Stage::all_reduce(1)));
  stage.now = Nanos(1000);
  stage.finish_next();
  EXPECT_EQ(stage.graph.lanes()[Rank(0)].exposed().all, Nanos(1000));
  EXPECT_EQ(stage.graph.lanes()[Rank(0)].exposed().to_halos, Nanos(0));
  EXPECT_EQ(stage.graph.lanes()[Rank(1)].exposed().all, Nanos(0));
}

// Goal:   of that time, the part in which it waits for a halo is told apart, on a lane of its own too.
// Method: the kernel waits for a gather and for a halo; the halo ends first.
TEST(Graph, CountsTheTimeThatComputeWaitsForHalos) {
  Stage stage(world_of(2), {{"pair", {Rank(0), Rank(1)}}});
  const auto halo_lane = [&](std::uint32_t rank) {
    return *stage.graph.open_lanes().open(Rank(rank), MUSTER_LANE_HALO, "model");
  };
  const std::uint32_t here = halo_lane(0), there = halo_lane(1);
  const auto gathered = stage.start(0, MUSTER_LANE_GATHER, stage.collective(0, 0, Stage::all_reduce(1)));
  const auto ghosts = stage.start(0, here, stage.collective(0, 0, Stage::all_reduce(1)));
  stage.start(0, MUSTER_LANE_COMPUTE, stage.kernel(), {gathered, ghosts});
  stage.now = Nanos(300);
  stage.start(1, there, stage.collective(0, 1, Stage::all_reduce(1)));
  stage.now = Nanos(400);
  stage.finish_next();
  stage.now = Nanos(700);
  stage.start(1, MUSTER_LANE_GATHER, stage.collective(0, 1, Stage::all_reduce(1)));
  stage.now = Nanos(1000);
  stage.finish_next();
  EXPECT_EQ(stage.graph.lanes()[Rank(0)].exposed().all, Nanos(1000));
  EXPECT_EQ(stage.graph.lanes()[Rank(0)].exposed().to_halos, Nanos(400));
}

}  // namespace
}  // namespace muster::scheduler
