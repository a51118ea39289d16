// OpenLanes: named lanes meet whatever their numbers, and one that is closed leaves nothing behind.
#include "scheduler/run/open_lanes.hpp"

#include "tests/scheduler/run/graph_fixture.hpp"

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace muster::scheduler::test {
namespace {

using ::testing::HasSubstr;

class Lanes : public ::testing::Test {
 protected:
  std::uint32_t open(std::uint32_t rank, muster_lane lane_class, const char* name) {
    const auto lane = stage.graph.open_lanes().open(Rank(rank), lane_class, name);
    EXPECT_TRUE(lane) << lane.error().text();
    return lane.value_or(0);
  }
  Status close(std::uint32_t rank, std::uint32_t lane) {
    return stage.graph.open_lanes().close(Rank(rank), lane);
  }
  std::uint64_t reduce(std::uint32_t group, std::uint32_t rank, std::uint32_t lane) {
    return stage.start(rank, lane, stage.collective(group, rank, Stage::all_reduce(1)));
  }
  std::uint64_t reached(std::uint32_t rank, std::uint32_t lane) const {
    return stage.graph.lanes()[Rank(rank)].lane(lane).reached();
  }

  Stage stage{{2, 16, 4}, {{"a", {Rank(0), Rank(1)}}, {"b", {Rank(0), Rank(1)}}}};
};

TEST_F(Lanes, OfEqualClassAndNameMeetWhateverTheirNumbers) {
  open(0, MUSTER_LANE_GATHER, "other");
  const std::uint32_t first = open(0, MUSTER_LANE_GATHER, "x");
  const std::uint32_t second = open(1, MUSTER_LANE_GATHER, "x");
  ASSERT_NE(first, second);
  reduce(0, 0, first);
  EXPECT_TRUE(stage.launched.empty());
  reduce(0, 1, second);
  ASSERT_EQ(stage.launched.size(), 1u);
  stage.finish_all();
  EXPECT_EQ(reached(0, first), 1u);
  EXPECT_EQ(reached(1, second), 1u);
}

TEST_F(Lanes, OfAnotherNameOrClassDoNotMeet) {
  reduce(0, 0, open(0, MUSTER_LANE_GATHER, "x"));
  reduce(0, 1, open(1, MUSTER_LANE_GATHER, "y"));
  reduce(0, 1, open(1, MUSTER_LANE_REDUCE, "x"));
  reduce(0, 1, MUSTER_LANE_GATHER);
  EXPECT_TRUE(stage.launched.empty());
}

// Goal:   two halves of a program use two groups in opposite order, which one lane would not survive.
TEST_F(Lanes, KeepApartWhatRanksStartInOppositeOrder) {
  std::vector<std::uint32_t> a, b;
  for (const std::uint32_t rank : {0u, 1u}) {
    a.push_back(open(rank, MUSTER_LANE_ALLREDUCE, "a"));
    b.push_back(open(rank, MUSTER_LANE_ALLREDUCE, "b"));
  }
  reduce(0, 0, a[0]);
  reduce(1, 0, b[0]);
  reduce(1, 1, b[1]);
  reduce(0, 1, a[1]);
  EXPECT_EQ(stage.launched.size(), 2u);
}

TEST_F(Lanes, WithoutANameCarryKernelsOnly) {
  const std::uint32_t lane = open(0, MUSTER_LANE_COMPUTE, "");
  EXPECT_NE(open(0, MUSTER_LANE_COMPUTE, ""), lane) << "as many as are asked for";
  stage.start(0, lane, stage.kernel());
  EXPECT_EQ(stage.last_code, Code::kOk);
  reduce(0, 0, lane);
  EXPECT_EQ(stage.last_code, Code::kBadArgument);
}

TEST_F(Lanes, OfOneNameAreOneAtARank) {
  const std::uint32_t lane = open(0, MUSTER_LANE_HALO, "x");
  const auto again = stage.graph.open_lanes().open(Rank(0), MUSTER_LANE_HALO, "x");
  ASSERT_FALSE(again);
  EXPECT_EQ(again.error().code(), Code::kDuplicate);
  EXPECT_THAT(again.error().text(), HasSubstr("halo/x"));
  EXPECT_THAT(again.error().text(), HasSubstr(std::to_string(lane)));
}

TEST_F(Lanes, AreSixtyFourAtMost) {
  for (std::uint32_t i = MUSTER_LANE_CLASSES; i < shm::kLanesMax; ++i)
    EXPECT_EQ(open(0, MUSTER_LANE_COPY, std::to_string(i).c_str()), i);
  const auto more = stage.graph.open_lanes().open(Rank(0), MUSTER_LANE_COPY, "more");
  ASSERT_FALSE(more);
  EXPECT_EQ(more.error().code(), Code::kNoResource);
  EXPECT_TRUE(close(0, 40).ok());
  EXPECT_EQ(open(0, MUSTER_LANE_COPY, "more"), 40u);
  EXPECT_EQ(open(1, MUSTER_LANE_COPY, "more"), MUSTER_LANE_CLASSES) << "numbers are each rank's own";
}

TEST_F(Lanes, HaveSoManyNamesInTheLifeOfAJob) {
  LaneTable names;
  for (std::size_t i = 0; i < LaneTable::kLaneNamesMax; ++i)
    ASSERT_TRUE(names.id_of(MUSTER_LANE_COPY, std::to_string(i)));
  EXPECT_EQ(names.id_of(MUSTER_LANE_COPY, "more").error().code(), Code::kNoResource);
  EXPECT_TRUE(names.id_of(MUSTER_LANE_COPY, "7")) << "a name that was used before";
}

TEST_F(Lanes, CloseOnlyWhenNothingIsInFlight) {
  EXPECT_EQ(close(0, MUSTER_LANE_COPY).code(), Code::kBadArgument) << "a first lane stays";
  EXPECT_EQ(close(0, 7).code(), Code::kBadArgument) << "no such lane";
  const std::uint32_t lane = open(0, MUSTER_LANE_GATHER, "x");
  const std::uint32_t other = open(1, MUSTER_LANE_GATHER, "x");
  reduce(0, 0, lane);
  EXPECT_EQ(close(0, lane).code(), Code::kBusy) << "it waits for its peer";
  reduce(0, 1, other);
  EXPECT_EQ(close(0, lane).code(), Code::kBusy) << "it runs";
  stage.finish_all();
  EXPECT_TRUE(close(0, lane).ok());
  EXPECT_EQ(close(0, lane).code(), Code::kBadArgument) << "it is gone";
}

// Goal:   a start that follows may wait for a point of a lane that is gone.
TEST_F(Lanes, KeepTheirPointsWhenTheyCloseAndGoOnFromThem) {
  const std::uint32_t lane = open(0, MUSTER_LANE_COMPUTE, "x");
  const auto point = stage.start(0, lane, stage.kernel());
  stage.finish_all();
  ASSERT_TRUE(close(0, lane).ok());
  stage.start(0, MUSTER_LANE_COMPUTE, stage.kernel(), {point});
  EXPECT_EQ(stage.launched.size(), 1u);
  ASSERT_EQ(open(0, MUSTER_LANE_COPY, "y"), lane);
  EXPECT_EQ(shm::point_value(stage.start(0, lane, stage.kernel())), 2u);
}

// Goal:   one member closes and opens a lane while the other keeps it: both still count the same operations.
TEST_F(Lanes, GoOnInOneCountWhenOneMemberOpensThemAgain) {
  std::uint32_t lane = open(0, MUSTER_LANE_GATHER, "x");
  const std::uint32_t other = open(1, MUSTER_LANE_GATHER, "x");
  for (int round = 0; round < 3; ++round) {
    reduce(0, 0, lane);
    reduce(0, 1, other);
    stage.finish_all();
    ASSERT_TRUE(close(0, lane).ok());
    lane = open(0, MUSTER_LANE_GATHER, "x");
  }
  EXPECT_EQ(stage.graph.matches()[GroupId(0)].matched(stage.graph.lanes()[Rank(0)].id(lane)), 3u);
  EXPECT_EQ(reached(1, other), 3u);
}

TEST_F(Lanes, HavePlacesInGroupsThatAreMadeLater) {
  const std::uint32_t lane = open(0, MUSTER_LANE_GATHER, "x");
  const std::uint32_t other = open(1, MUSTER_LANE_GATHER, "x");
  stage.graph.open_lanes().set_group(GroupId(1), {"later", {Rank(1), Rank(0)}});
  reduce(1, 0, lane);
  reduce(1, 1, other);
  EXPECT_EQ(stage.launched.size(), 1u);
}

TEST_F(Lanes, CloseWithTheirClient) {
  const std::uint32_t lane = open(0, MUSTER_LANE_GATHER, "x");
  const std::uint32_t other = open(1, MUSTER_LANE_GATHER, "x");
  reduce(0, 1, other);
  stage.graph.detached(Rank(0), "rank 0 is gone", stage.now);
  EXPECT_TRUE(stage.stopped_with(1, other, Code::kPeerLost));
  EXPECT_FALSE(stage.graph.lanes()[Rank(0)].is_open(lane));
  stage.graph.attached(Rank(0));
  stage.graph.reset_lane(Rank(1), other, stage.now);
  const std::uint32_t again = open(0, MUSTER_LANE_GATHER, "x");
  reduce(0, 0, again);
  reduce(0, 1, other);
  EXPECT_EQ(stage.launched.size(), 1u);
}

// Goal:   a rank that opens a lane after a loss hears of it there, as on the lanes that it had.
// Method: a lane that nobody has had, one that only the lost rank had, and one that was given up meanwhile.
TEST_F(Lanes, AreOpenedWithTheLossesOfWhichTheirRankHasNotHeard) {
  const std::uint32_t before = open(1, MUSTER_LANE_GATHER, "given up");
  open(0, MUSTER_LANE_GATHER, "lost");
  stage.graph.detached(Rank(0), "rank 0 is gone", stage.now);
  stage.graph.attached(Rank(0));
  ASSERT_TRUE(close(1, before).ok());
  for (const char* name : {"new", "lost", "given up"}) {
    const std::uint32_t mine = open(1, MUSTER_LANE_GATHER, name);
    const std::uint32_t theirs = open(0, MUSTER_LANE_GATHER, name);
    reduce(0, 0, theirs);
    reduce(0, 1, mine);
    EXPECT_TRUE(stage.launched.empty()) << name;
    EXPECT_TRUE(stage.stopped_with(1, mine, Code::kPeerLost)) << name;
  }
  // Once it has heard, they meet, on lanes that come later too.
  stage.graph.reset_lane(Rank(1), 7, stage.now);
  const std::uint32_t theirs = open(0, MUSTER_LANE_GATHER, "later");
  const std::uint32_t mine = open(1, MUSTER_LANE_GATHER, "later");
  reduce(0, 0, theirs);
  reduce(0, 1, mine);
  EXPECT_EQ(stage.launched.size(), 1u);
}

// Goal:   a stream on which work of a former client runs is given to nobody.
TEST_F(Lanes, KeepTheirNumberWhileWorkOfAFormerClientRuns) {
  const std::uint32_t lane = open(0, MUSTER_LANE_COMPUTE, "x");
  stage.start(0, lane, stage.kernel());
  stage.graph.detached(Rank(0), "gone", stage.now);
  stage.graph.attached(Rank(0));
  EXPECT_NE(open(0, MUSTER_LANE_COMPUTE, "x"), lane);
  stage.finish_all();
  EXPECT_EQ(open(0, MUSTER_LANE_COMPUTE, "y"), lane);
}

TEST_F(Lanes, AreNamedInWhatTheirFailureSays) {
  const std::uint32_t lane = open(0, MUSTER_LANE_GATHER, "evaluation");
  open(1, MUSTER_LANE_GATHER, "evaluation");
  reduce(0, 0, lane);
  stage.pass(std::chrono::seconds(61));
  ASSERT_TRUE(stage.stopped_with(0, lane, Code::kTimeout));
  EXPECT_THAT(stage.stop_text(0, lane), HasSubstr("on lane gather/evaluation passed its deadline"));
  EXPECT_EQ(close(0, lane).code(), Code::kBusy) << "it stands still until it is reset";
  stage.graph.reset_lane(Rank(0), lane, stage.now);
  EXPECT_TRUE(close(0, lane).ok());
}

}  // namespace
}  // namespace muster::scheduler::test
