// The operations that a failure ends, and the members that get it and how often.
#include "scheduler/run/graph.hpp"

#include "tests/scheduler/run/graph_fixture.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace muster::scheduler {
namespace {

using test::Stage;
using test::world_of;
using ::testing::HasSubstr;

Collective message(muster_op op, std::uint64_t count) {
  Collective c;
  c.op = op;
  c.dtype = MUSTER_U8;
  c.root = 0;
  c.receiver = 1;
  c.count = count;
  return c;
}

// Groups 0: ranks 0 and 1; 1: ranks 0 and 2; 2: all three.
class Failure : public ::testing::Test {
 protected:
  std::uint64_t reduce(std::uint32_t group, std::uint32_t rank, std::uint32_t lane,
                       std::vector<std::uint64_t> waits = {}, Nanos timeout = std::chrono::seconds(60)) {
    return stage.start(rank, lane, stage.collective(group, rank, Stage::all_reduce(1)), std::move(waits),
                       timeout);
  }
  void reset(std::uint32_t rank, std::uint32_t lane) {
    stage.stops.erase({rank, lane});
    stage.graph.reset_lane(Rank(rank), lane, stage.now);
  }
  // Both members of the first group reset the lane and reduce there, in that order: their first launch.
  void expect_to_meet_again(std::initializer_list<std::uint32_t> ranks, std::uint32_t lane) {
    for (const std::uint32_t rank : ranks) {
      reset(rank, lane);
      reduce(0, rank, lane);
    }
    EXPECT_EQ(stage.launched.size(), 1u);
  }
  bool stopped(std::uint32_t rank, std::uint32_t lane) const {
    return stage.graph.lanes()[Rank(rank)].lane(lane).failures().stopped();
  }
  void pass(Nanos time) { stage.pass(time); }

  Stage stage{world_of(3),
              {{"first", {Rank(0), Rank(1)}},
               {"second", {Rank(0), Rank(2)}},
               {"world", {Rank(0), Rank(1), Rank(2)}}}};
  static constexpr std::uint64_t kNever = shm::make_point(shm::kClientTimelineFirst, 1);
};

// Goal:   a rank still gets a pending loss of another group after it resets a lane for another reason.
// Method: rank 2 dies while rank 0 waits elsewhere; the group where it waits is aborted, the lane reset.
TEST_F(Failure, StillTellsOfALossAfterAResetForAnotherReason) {
  reduce(0, 0, MUSTER_LANE_SMALL);
  stage.graph.detached(Rank(2), "rank 2 died", stage.now);
  stage.graph.abort({GroupId(0)}, {Code::kAborted, 1, "aborted"}, stage.now);
  ASSERT_TRUE(stage.stopped_with(0, MUSTER_LANE_SMALL, Code::kAborted));
  reset(0, MUSTER_LANE_SMALL);
  stage.graph.attached(Rank(2));
  reduce(1, 2, MUSTER_LANE_SMALL);
  reduce(1, 0, MUSTER_LANE_SMALL);
  EXPECT_TRUE(stage.launched.empty());
  ASSERT_TRUE(stage.stopped_with(0, MUSTER_LANE_SMALL, Code::kPeerLost)) << "never a late success";
  reset(0, MUSTER_LANE_SMALL);
  reduce(1, 0, MUSTER_LANE_SMALL);
  EXPECT_EQ(stage.launched.size(), 1u) << "that was all";
}

// Goal:   a rank that knows of a loss does not take part with a start that it submitted before it knew.
TEST_F(Failure, TellsAgainWhereAStartFromBeforeTheResetWaits) {
  reduce(2, 0, MUSTER_LANE_SMALL);
  reduce(2, 0, MUSTER_LANE_HALO, {kNever});
  stage.graph.detached(Rank(2), "rank 2 died", stage.now);
  ASSERT_TRUE(stopped(0, MUSTER_LANE_SMALL));
  reset(0, MUSTER_LANE_SMALL);
  stage.graph.attached(Rank(2));
  reduce(2, 1, MUSTER_LANE_HALO);
  ASSERT_TRUE(stopped(1, MUSTER_LANE_HALO));
  reset(1, MUSTER_LANE_HALO);
  reduce(2, 1, MUSTER_LANE_HALO);
  reduce(2, 2, MUSTER_LANE_HALO);
  stage.graph.signal(Rank(0), shm::kClientTimelineFirst, 1, stage.now);
  EXPECT_TRUE(stage.launched.empty()) << "an operation from before the death";
  EXPECT_TRUE(stage.stopped_with(0, MUSTER_LANE_HALO, Code::kPeerLost));
  reset(0, MUSTER_LANE_HALO);
  reduce(2, 0, MUSTER_LANE_HALO);
  EXPECT_EQ(stage.launched.size(), 1u);
}

// Goal:   a collective that fails before its group has met for it fails for all. So no member meets the
//         rank's next collective instead.
TEST_F(Failure, TakesThePeersOutOfACollectiveThatFellBeforeItArrived) {
  reduce(0, 0, MUSTER_LANE_SMALL);
  reduce(0, 1, MUSTER_LANE_SMALL, {kNever}, Nanos(10));
  pass(Nanos(11));
  ASSERT_TRUE(stage.stopped_with(1, MUSTER_LANE_SMALL, Code::kTimeout));
  ASSERT_TRUE(stage.stopped_with(0, MUSTER_LANE_SMALL, Code::kTimeout));
  EXPECT_THAT(stage.stop_text(0, MUSTER_LANE_SMALL), HasSubstr("client timeline"));
  expect_to_meet_again({1u, 0u}, MUSTER_LANE_SMALL);
  EXPECT_TRUE(stage.stops.empty()) << "each has heard once";
}

// Goal:   a rank that gives up an operation does not take a peer's next operation for it, and no peer waits
//         for that rank.
TEST_F(Failure, EndsForAllWhatARankGivesUp) {
  const Cause interrupted{Code::kAborted, 0, "rank 0 was interrupted"};
  stage.graph.give_up(Rank(0), MUSTER_LANE_SMALL, interrupted, stage.now);
  EXPECT_TRUE(stage.stops.empty()) << "nothing was there";
  reduce(2, 0, MUSTER_LANE_SMALL);
  reduce(2, 1, MUSTER_LANE_SMALL);
  stage.graph.give_up(Rank(0), MUSTER_LANE_SMALL, interrupted, stage.now);
  for (std::uint32_t rank = 0; rank < 2; ++rank) {
    ASSERT_TRUE(stage.stopped_with(rank, MUSTER_LANE_SMALL, Code::kAborted)) << rank;
    EXPECT_EQ((stage.stops.at({rank, MUSTER_LANE_SMALL}).verdict.culprit), 0);
    reset(rank, MUSTER_LANE_SMALL);
  }
  reduce(2, 2, MUSTER_LANE_SMALL);
  ASSERT_TRUE(stage.stopped_with(2, MUSTER_LANE_SMALL, Code::kAborted)) << "who comes later hears too";
  reset(2, MUSTER_LANE_SMALL);
  for (std::uint32_t rank = 0; rank < 3; ++rank) reduce(2, rank, MUSTER_LANE_SMALL);
  ASSERT_EQ(stage.launched.size(), 1u);
  stage.graph.give_up(Rank(0), MUSTER_LANE_SMALL, interrupted, stage.now);
  EXPECT_TRUE(stage.stops.empty()) << "what runs goes on";
  stage.finish_all();
  EXPECT_EQ((stage.points.at({0, MUSTER_LANE_SMALL})), 2u);
}

// Goal:   a step that a worker has not yet handed to the network ends as well, once it waits there.
TEST_F(Failure, EndsForAllWhatARankGivesUpOnItsWayToAnotherNode) {
  for (std::uint32_t rank = 0; rank < 3; ++rank) reduce(2, rank, MUSTER_LANE_SMALL);
  ASSERT_EQ(stage.launched.size(), 1u);
  stage.graph.give_up(Rank(0), MUSTER_LANE_SMALL, {Code::kAborted, 0, "rank 0 was interrupted"}, stage.now);
  pass(Nanos(1));
  EXPECT_TRUE(stage.stops.empty()) << "it may end by itself";
  stage.outside = true;
  stage.moved = stage.now;
  pass(Nanos(1));
  for (std::uint32_t rank = 0; rank < 3; ++rank) {
    EXPECT_TRUE(stage.stopped_with(rank, MUSTER_LANE_SMALL, Code::kAborted)) << rank;
    EXPECT_THAT(stage.stop_text(rank, MUSTER_LANE_SMALL), HasSubstr("rank 0 was interrupted"));
  }
}

// Goal:   a start behind another start of its lane fails as well, though it has not met any peer.
TEST_F(Failure, EndsForAllWhatARankGivesUpBehindAnother) {
  reduce(0, 1, MUSTER_LANE_SMALL);
  stage.start(0, MUSTER_LANE_SMALL, stage.kernel(), {kNever});
  reduce(0, 0, MUSTER_LANE_SMALL);
  stage.graph.give_up(Rank(0), MUSTER_LANE_SMALL, {Code::kAborted, 0, "rank 0 was interrupted"}, stage.now);
  EXPECT_TRUE(stage.stopped_with(0, MUSTER_LANE_SMALL, Code::kAborted));
  EXPECT_TRUE(stage.stopped_with(1, MUSTER_LANE_SMALL, Code::kAborted));
  expect_to_meet_again({0u, 1u}, MUSTER_LANE_SMALL);
}

TEST_F(Failure, TellsAPeerThatComesLaterOfACollectiveThatFell) {
  reduce(0, 1, MUSTER_LANE_SMALL, {kNever}, Nanos(10));
  pass(Nanos(11));
  reduce(0, 0, MUSTER_LANE_SMALL);
  EXPECT_TRUE(stage.stopped_with(0, MUSTER_LANE_SMALL, Code::kTimeout));
}

TEST_F(Failure, TakesThePeersOutOfWhatStoodBehindAFailureOnItsLane) {
  reduce(1, 0, MUSTER_LANE_SMALL);
  reduce(0, 0, MUSTER_LANE_SMALL);
  reduce(0, 1, MUSTER_LANE_SMALL);
  stage.graph.detached(Rank(2), "rank 2 died", stage.now);
  ASSERT_TRUE(stage.stopped_with(0, MUSTER_LANE_SMALL, Code::kPeerLost));
  ASSERT_TRUE(stage.stopped_with(1, MUSTER_LANE_SMALL, Code::kPeerLost));
  EXPECT_THAT(stage.stop_text(1, MUSTER_LANE_SMALL), HasSubstr("rank 2 died"));
}

TEST_F(Failure, TakesThePeersOutOfWhatIsSubmittedToAStoppedLane) {
  reduce(1, 0, MUSTER_LANE_SMALL);
  stage.graph.detached(Rank(2), "rank 2 died", stage.now);
  ASSERT_TRUE(stopped(0, MUSTER_LANE_SMALL));
  reduce(0, 1, MUSTER_LANE_SMALL);
  EXPECT_FALSE(stopped(1, MUSTER_LANE_SMALL));
  reduce(0, 0, MUSTER_LANE_SMALL);
  EXPECT_TRUE(stage.stopped_with(1, MUSTER_LANE_SMALL, Code::kPeerLost));
  expect_to_meet_again({0u, 1u}, MUSTER_LANE_SMALL);
}

// Goal:   peers of a lane that fails because of another lane get the cause, with its own code. If the rank
//         comes upon that fault again, nothing ends by it again: the peer waits for the rank's next start.
TEST_F(Failure, PassesTheCauseOnAcrossLanes) {
  const auto lost = reduce(1, 0, MUSTER_LANE_SMALL);
  reduce(0, 0, MUSTER_LANE_HALO, {lost});
  reduce(0, 1, MUSTER_LANE_HALO);
  stage.graph.detached(Rank(2), "rank 2 died", stage.now);
  ASSERT_TRUE(stage.stopped_with(0, MUSTER_LANE_HALO, Code::kDependency));
  ASSERT_TRUE(stage.stopped_with(1, MUSTER_LANE_HALO, Code::kPeerLost));
  EXPECT_EQ((stage.stops[{1, MUSTER_LANE_HALO}].verdict.culprit), 2);
  reset(0, MUSTER_LANE_SMALL);
  reset(0, MUSTER_LANE_HALO);
  reset(1, MUSTER_LANE_HALO);
  reduce(0, 1, MUSTER_LANE_HALO);
  reduce(0, 0, MUSTER_LANE_HALO, {lost});
  EXPECT_TRUE(stage.stopped_with(0, MUSTER_LANE_HALO, Code::kDependency));
  EXPECT_FALSE(stopped(1, MUSTER_LANE_HALO));
  expect_to_meet_again({0u}, MUSTER_LANE_HALO);
}

// Goal:   a point that failed is not reached by a reset, for the lane that was reset neither.
TEST_F(Failure, StandsForWhatWaitsForItsPointOnTheSameLane) {
  const auto lost = reduce(1, 0, MUSTER_LANE_HALO);
  stage.graph.detached(Rank(2), "rank 2 died", stage.now);
  ASSERT_TRUE(stage.stopped_with(0, MUSTER_LANE_HALO, Code::kPeerLost));
  reset(0, MUSTER_LANE_HALO);
  reduce(0, 0, MUSTER_LANE_HALO, {lost});
  reduce(0, 1, MUSTER_LANE_HALO);
  EXPECT_TRUE(stage.stopped_with(0, MUSTER_LANE_HALO, Code::kDependency));
  EXPECT_TRUE(stage.stopped_with(1, MUSTER_LANE_HALO, Code::kPeerLost));
  expect_to_meet_again({0u, 1u}, MUSTER_LANE_HALO);
}

// Goal:   one failure counts once. A member that gets it late does not stop members that have reset after it,
//         however much it has queued, or starts before it looks.
TEST_F(Failure, LeavesThoseAloneWhoHaveGotOverIt) {
  reduce(2, 0, MUSTER_LANE_SMALL, {}, Nanos(10));
  reduce(2, 2, MUSTER_LANE_SMALL);
  pass(Nanos(11));
  for (const std::uint32_t rank : {0u, 2u}) {
    ASSERT_TRUE(stage.stopped_with(rank, MUSTER_LANE_SMALL, Code::kTimeout));
    reset(rank, MUSTER_LANE_SMALL);
    reduce(2, rank, MUSTER_LANE_SMALL);
  }
  const auto gate = reduce(2, 1, MUSTER_LANE_SMALL, {kNever});
  reduce(2, 1, MUSTER_LANE_SMALL);
  reduce(2, 1, MUSTER_LANE_SMALL, {gate});
  stage.graph.signal(Rank(1), shm::kClientTimelineFirst, 1, stage.now);
  ASSERT_TRUE(stage.stopped_with(1, MUSTER_LANE_SMALL, Code::kTimeout));
  for (int i = 0; i < 3; ++i) reduce(2, 1, MUSTER_LANE_SMALL);
  EXPECT_FALSE(stopped(0, MUSTER_LANE_SMALL));
  EXPECT_FALSE(stopped(2, MUSTER_LANE_SMALL));
  reset(1, MUSTER_LANE_SMALL);
  reduce(2, 1, MUSTER_LANE_SMALL);
  EXPECT_EQ(stage.launched.size(), 1u);
}

// Goal:   a SEND that fails fails for its receiver too, on whichever lane that waits.
TEST_F(Failure, TakesThePartnerOfAMessageOutAcrossLanes) {
  stage.start(1, MUSTER_LANE_SMALL, stage.collective(0, 1, message(MUSTER_RECV, 5)));
  stage.start(0, MUSTER_LANE_HALO, stage.collective(0, 0, message(MUSTER_SEND, 5)), {kNever}, Nanos(10));
  pass(Nanos(11));
  ASSERT_TRUE(stage.stopped_with(0, MUSTER_LANE_HALO, Code::kTimeout));
  ASSERT_TRUE(stage.stopped_with(1, MUSTER_LANE_SMALL, Code::kTimeout));
  reset(0, MUSTER_LANE_HALO);
  reset(1, MUSTER_LANE_SMALL);
  stage.start(0, MUSTER_LANE_HALO, stage.collective(0, 0, message(MUSTER_SEND, 5)));
  EXPECT_TRUE(stage.launched.empty());
  stage.start(1, MUSTER_LANE_SMALL, stage.collective(0, 1, message(MUSTER_RECV, 5)));
  EXPECT_EQ(stage.launched.size(), 1u);
}

TEST_F(Failure, TellsThePartnerOfAMessageThatComesLater) {
  stage.start(0, MUSTER_LANE_HALO, stage.collective(0, 0, message(MUSTER_SEND, 5)), {}, Nanos(10));
  reduce(0, 0, MUSTER_LANE_SMALL);
  pass(Nanos(11));
  ASSERT_TRUE(stage.stopped_with(0, MUSTER_LANE_HALO, Code::kTimeout));
  reset(0, MUSTER_LANE_HALO);
  stage.start(0, MUSTER_LANE_HALO, stage.collective(0, 0, message(MUSTER_SEND, 5)));
  stage.start(1, MUSTER_LANE_SMALL, stage.collective(0, 1, message(MUSTER_RECV, 5)));
  EXPECT_TRUE(stage.launched.empty()) << "message 2 is not taken for message 1";
  ASSERT_TRUE(stage.stopped_with(1, MUSTER_LANE_SMALL, Code::kTimeout));
  reset(1, MUSTER_LANE_SMALL);
  stage.start(1, MUSTER_LANE_COPY, stage.collective(0, 1, message(MUSTER_RECV, 5)));
  EXPECT_EQ(stage.launched.size(), 1u) << "once, on whichever lane it comes";
  EXPECT_FALSE(stopped(0, MUSTER_LANE_SMALL)) << "a message's failure is none of the lane's collectives";
}

TEST_F(Failure, TellsBothEndsOfAMessageOfADeparture) {
  stage.start(0, MUSTER_LANE_HALO, stage.collective(0, 0, message(MUSTER_SEND, 5)));
  stage.graph.detached(Rank(1), "rank 1 died", stage.now);
  EXPECT_TRUE(stage.stopped_with(0, MUSTER_LANE_HALO, Code::kPeerLost));
  stage.graph.attached(Rank(1));
  reset(0, MUSTER_LANE_HALO);
  stage.start(1, MUSTER_LANE_SMALL, stage.collective(0, 1, message(MUSTER_RECV, 5)));
  stage.start(0, MUSTER_LANE_HALO, stage.collective(0, 0, message(MUSTER_SEND, 5)));
  EXPECT_EQ(stage.launched.size(), 1u);
}

// Goal:   data that a rank sent before it knew of a loss does not reach the lost rank's successor. This holds
//         even if the rank has got the loss on another lane meanwhile.
TEST_F(Failure, KeepsMessagesFromBeforeALossFromWhoComesAfterIt) {
  stage.start(0, MUSTER_LANE_HALO, stage.collective(0, 0, message(MUSTER_SEND, 5)), {kNever});
  stage.graph.detached(Rank(1), "rank 1 died", stage.now);
  Collective back = message(MUSTER_RECV, 5);
  std::swap(back.root, back.receiver);
  stage.start(0, MUSTER_LANE_SMALL, stage.collective(0, 0, back));
  ASSERT_TRUE(stage.stopped_with(0, MUSTER_LANE_SMALL, Code::kPeerLost));
  reset(0, MUSTER_LANE_SMALL);
  stage.graph.attached(Rank(1));
  stage.start(1, MUSTER_LANE_HALO, stage.collective(0, 1, message(MUSTER_RECV, 5)));
  stage.graph.signal(Rank(0), shm::kClientTimelineFirst, 1, stage.now);
  EXPECT_TRUE(stage.launched.empty()) << "a message to who died";
  ASSERT_TRUE(stage.stopped_with(0, MUSTER_LANE_HALO, Code::kPeerLost));
  EXPECT_FALSE(stopped(1, MUSTER_LANE_HALO)) << "it was not meant";
  reset(0, MUSTER_LANE_HALO);
  stage.start(0, MUSTER_LANE_HALO, stage.collective(0, 0, message(MUSTER_SEND, 5)));
  EXPECT_EQ(stage.launched.size(), 1u);
}

// Goal:   until a rank has reset after an abort, no message of it reaches a rank that has, on any lane.
TEST_F(Failure, KeepsMessagesFromBeforeAResetFromWhoHasReset) {
  Collective back = message(MUSTER_RECV, 5);
  std::swap(back.root, back.receiver);
  Collective answer = back;
  answer.op = MUSTER_SEND;
  stage.graph.abort({GroupId(0)}, {Code::kAborted, 1, "aborted"}, stage.now);
  stage.start(0, MUSTER_LANE_HALO, stage.collective(0, 0, message(MUSTER_SEND, 5)));
  ASSERT_TRUE(stage.stopped_with(0, MUSTER_LANE_HALO, Code::kAborted));
  stage.start(1, MUSTER_LANE_SMALL, stage.collective(0, 1, answer));
  ASSERT_TRUE(stage.stopped_with(1, MUSTER_LANE_SMALL, Code::kAborted));
  reset(1, MUSTER_LANE_SMALL);
  stage.start(1, MUSTER_LANE_SMALL, stage.collective(0, 1, answer));
  stage.start(0, MUSTER_LANE_SMALL, stage.collective(0, 0, back));
  EXPECT_TRUE(stage.launched.empty()) << "it may not have seen the verdict yet";
  ASSERT_TRUE(stage.stopped_with(0, MUSTER_LANE_SMALL, Code::kAborted));
  reset(0, MUSTER_LANE_SMALL);
  stage.start(0, MUSTER_LANE_SMALL, stage.collective(0, 0, back));
  EXPECT_EQ(stage.launched.size(), 1u);
}

// Goal:   a failure that a rank has reset long ago does not come back, even after many later failures.
TEST_F(Failure, RemembersWhatWasGotOverBeforeManyOthers) {
  stage.start(0, MUSTER_LANE_HALO, stage.collective(0, 0, message(MUSTER_SEND, 5)));
  stage.graph.abort({GroupId(0)}, {Code::kAborted, 1, "aborted"}, stage.now);
  ASSERT_TRUE(stage.stopped_with(0, MUSTER_LANE_HALO, Code::kAborted));
  reset(0, MUSTER_LANE_HALO);
  for (std::uint64_t fault = 1000; fault < 1100; ++fault) stage.graph.heard(Rank(0), fault);
  stage.start(0, MUSTER_LANE_HALO, stage.collective(0, 0, message(MUSTER_SEND, 5)));
  EXPECT_FALSE(stopped(0, MUSTER_LANE_HALO));
  stage.start(1, MUSTER_LANE_HALO, stage.collective(0, 1, message(MUSTER_RECV, 5)));
  ASSERT_TRUE(stage.stopped_with(1, MUSTER_LANE_HALO, Code::kAborted)) << "which it had not heard";
  reset(1, MUSTER_LANE_HALO);
  stage.start(1, MUSTER_LANE_HALO, stage.collective(0, 1, message(MUSTER_RECV, 5)));
  EXPECT_EQ(stage.launched.size(), 1u);
}

// Goal:   a rank that missed several ends gets the oldest, and no other once it has reset its lane.
// Method: a deadline of rank 1 ends a place and a pair. A loss elsewhere ends the place again, because rank 1
//         drops its start there.
TEST_F(Failure, TellsOfTheOldestEndAndThenOfNoOther) {
  stage.start(1, MUSTER_LANE_SMALL, stage.kernel(), {kNever}, Nanos(10));
  reduce(0, 1, MUSTER_LANE_SMALL);
  stage.start(1, MUSTER_LANE_SMALL, stage.collective(0, 1, message(MUSTER_RECV, 5)));
  pass(Nanos(11));
  ASSERT_TRUE(stage.stopped_with(1, MUSTER_LANE_SMALL, Code::kTimeout)) << "and what stood behind it";
  reset(1, MUSTER_LANE_SMALL);
  reduce(2, 1, MUSTER_LANE_SMALL);
  reduce(0, 1, MUSTER_LANE_SMALL);
  stage.graph.detached(Rank(2), "rank 2 died", stage.now);
  ASSERT_TRUE(stage.stopped_with(1, MUSTER_LANE_SMALL, Code::kPeerLost));
  reset(1, MUSTER_LANE_SMALL);
  reduce(0, 0, MUSTER_LANE_SMALL);
  ASSERT_TRUE(stage.stopped_with(0, MUSTER_LANE_SMALL, Code::kTimeout));
  reset(0, MUSTER_LANE_SMALL);
  stage.start(0, MUSTER_LANE_SMALL, stage.collective(0, 0, message(MUSTER_SEND, 5)));
  EXPECT_FALSE(stopped(0, MUSTER_LANE_SMALL)) << "the pair has ended by the deadline alone";
  stage.start(1, MUSTER_LANE_SMALL, stage.collective(0, 1, message(MUSTER_RECV, 5)));
  EXPECT_EQ(stage.launched.size(), 1u);
  stage.finish_all();
  reduce(0, 0, MUSTER_LANE_SMALL);
  reduce(0, 1, MUSTER_LANE_SMALL);
  EXPECT_EQ(stage.launched.size(), 1u);
}

// Goal:   in a group that spans nodes a rank stands in one epoch at all places, so no operation hears of an
//         end that another one, which was completed, is past.
// Method: an abort stops two lanes. Between their resets a second abort ends the group.
TEST_F(Failure, TellsOfTheSameEndsAtAllPlacesOfAGroupThatSpansNodes) {
  Stage wide{world_of(2), {{"wide", {Rank(0), Rank(1)}, 7}}};
  const auto reduce = [&wide](std::uint32_t rank, std::uint32_t lane) {
    wide.start(rank, lane, wide.collective(0, rank, Stage::all_reduce(1)));
  };
  const auto reset = [&wide](std::uint32_t lane) {
    wide.stops.erase({0, lane});
    wide.graph.reset_lane(Rank(0), lane, wide.now);
  };
  constexpr std::uint32_t kLanes[] = {MUSTER_LANE_SMALL, MUSTER_LANE_REDUCE};
  for (const std::uint32_t lane : kLanes) reduce(0, lane);
  wide.graph.abort({GroupId(0)}, {Code::kAborted, 1, "first"}, wide.now);
  for (const std::uint32_t lane : kLanes) {
    ASSERT_EQ(wide.stop_text(0, lane), "first");
    reset(lane);
    if (lane == kLanes[0]) wide.graph.abort({GroupId(0)}, {Code::kAborted, 1, "second"}, wide.now);
  }
  for (const std::uint32_t lane : kLanes) {
    reduce(0, lane);
    ASSERT_TRUE(wide.stopped_with(0, lane, Code::kAborted)) << "lane " << lane;
    EXPECT_EQ(wide.stop_text(0, lane), "second");
  }
  for (const std::uint32_t lane : kLanes) {
    reset(lane);
    for (const std::uint32_t rank : {0u, 1u}) reduce(rank, lane);
  }
  EXPECT_TRUE(wide.launched.empty()) << "rank 1 has heard of nothing yet";
  EXPECT_EQ(wide.stop_text(1, kLanes[0]), "first");
}

// Goal:   a failure that comes to a place after a loss which all there have got over is told there, though
//         the loss is the younger one.
TEST_F(Failure, TellsOfAnOlderFailureThatComesAfterALoss) {
  const std::uint64_t late = stage.start(0, MUSTER_LANE_HALO, stage.kernel(), {kNever}, Nanos(10));
  pass(Nanos(11));
  ASSERT_TRUE(stage.stopped_with(0, MUSTER_LANE_HALO, Code::kTimeout));
  reduce(2, 1, MUSTER_LANE_SMALL);
  reduce(0, 1, MUSTER_LANE_SMALL);
  stage.graph.detached(Rank(2), "rank 2 died", stage.now);
  reduce(0, 0, MUSTER_LANE_SMALL);
  ASSERT_TRUE(stage.stopped_with(0, MUSTER_LANE_SMALL, Code::kPeerLost));
  ASSERT_TRUE(stage.stopped_with(1, MUSTER_LANE_SMALL, Code::kPeerLost));
  reset(0, MUSTER_LANE_SMALL);
  reset(1, MUSTER_LANE_SMALL);
  reduce(0, 0, MUSTER_LANE_SMALL, {late});
  ASSERT_TRUE(stage.stopped_with(0, MUSTER_LANE_SMALL, Code::kDependency));
  reset(0, MUSTER_LANE_SMALL);
  reduce(0, 0, MUSTER_LANE_SMALL);
  reduce(0, 1, MUSTER_LANE_SMALL);
  EXPECT_TRUE(stage.launched.empty()) << "it was to meet the first one";
  ASSERT_TRUE(stage.stopped_with(1, MUSTER_LANE_SMALL, Code::kTimeout));
  reset(1, MUSTER_LANE_SMALL);
  reduce(0, 1, MUSTER_LANE_SMALL);
  EXPECT_EQ(stage.launched.size(), 1u);
}

// Goal:   why a rank will not come is a failure of its own, so that a reset acknowledges it.
TEST_F(Failure, NumbersWhyARankIsAbsentThatLeftBecauseOfAnother) {
  reduce(1, 0, MUSTER_LANE_SMALL);
  stage.graph.detached(Rank(2), "rank 2 died", stage.now);
  ASSERT_TRUE(stopped(0, MUSTER_LANE_SMALL));
  stage.graph.absent(Rank(0), "rank 0 exited with code 3", stage.now);
  const auto left = stage.graph.detached(Rank(0), "rank 0 detached", stage.now);
  ASSERT_NE(stage.graph.absences().of(Rank(0)), nullptr);
  EXPECT_THAT(stage.graph.absences().of(Rank(0))->text, HasSubstr("rank 2 died"));
  EXPECT_EQ(stage.graph.absences().of(Rank(0))->fault, left->fault);
  EXPECT_GT(left->fault, 0u);
}

// Goal:   a rank of this node that another node has lost lives, and is not to blame.
TEST_F(Failure, BlamesNoRankOfThisNodeThatAnotherHasLost) {
  reduce(0, 0, MUSTER_LANE_SMALL);
  reduce(0, 1, MUSTER_LANE_SMALL);
  const Status why(Code::kPeerLost, "node 3 does not hear node 1", 1);
  stage.finish_next(&why);
  for (const std::uint32_t rank : {0u, 1u}) {
    ASSERT_TRUE(stage.stopped_with(rank, MUSTER_LANE_SMALL, Code::kPeerLost)) << rank;
    EXPECT_EQ(stage.stops.at({rank, MUSTER_LANE_SMALL}).verdict.culprit, -1);
  }
}

// Goal:   all members of a launched step that fails get an error that names it. Starts that wait for it fail
//         with DEPENDENCY, other groups go on, and the lane works again after its reset.
TEST_F(Failure, TellsAllMembersOfALaunchedStepThatFails) {
  const std::uint64_t point = reduce(0, 0, MUSTER_LANE_SMALL);
  reduce(0, 1, MUSTER_LANE_SMALL);
  stage.start(0, MUSTER_LANE_COMPUTE, stage.kernel(), {point});
  reduce(1, 2, MUSTER_LANE_HALO);
  const Status why(Code::kPeerLost, "the link to node 3 broke", 9);
  stage.finish_next(&why);
  for (const std::uint32_t rank : {0u, 1u}) {
    ASSERT_TRUE(stage.stopped_with(rank, MUSTER_LANE_SMALL, Code::kPeerLost)) << rank;
    EXPECT_EQ(stage.stop_text(rank, MUSTER_LANE_SMALL),
              "group first: all_reduce on lane small failed: the link to node 3 broke");
    EXPECT_EQ(stage.stops.at({rank, MUSTER_LANE_SMALL}).verdict.culprit, 9);
  }
  EXPECT_TRUE(stage.stopped_with(0, MUSTER_LANE_COMPUTE, Code::kDependency));
  EXPECT_FALSE(stopped(2, MUSTER_LANE_HALO));
  reduce(1, 0, MUSTER_LANE_HALO);
  ASSERT_EQ(stage.launched.size(), test::stream_waits() ? 2u : 1u) << "of the other group, and what waits";
  stage.finish_all();
  EXPECT_EQ((stage.points.at({2, MUSTER_LANE_HALO})), 1u);
  expect_to_meet_again({0u, 1u}, MUSTER_LANE_SMALL);
}

// Goal:   a step launched behind a failing kernel ends, and does not count. A code that means something else
//         to a client is reported as one of the device.
TEST_F(Failure, CountsNothingBehindAKernelThatFails) {
  for (int i = 0; i < 2; ++i) stage.start(1, MUSTER_LANE_COMPUTE, stage.kernel());
  const Status why(Code::kBusy, "no room");
  stage.finish_next(&why);
  ASSERT_TRUE(stage.stopped_with(1, MUSTER_LANE_COMPUTE, Code::kDevice));
  EXPECT_EQ(stage.stop_text(1, MUSTER_LANE_COMPUTE),
            "rank 1: nothing on lane compute failed: MUSTER_ERR_BUSY: no room");
  stage.finish_next();
  EXPECT_EQ(stage.retired_badly, 2u);
  EXPECT_EQ(stage.points.count({1, MUSTER_LANE_COMPUTE}), 0u);
  reset(1, MUSTER_LANE_COMPUTE);
  stage.start(1, MUSTER_LANE_COMPUTE, stage.kernel());
  stage.finish_next();
  EXPECT_EQ((stage.points.at({1, MUSTER_LANE_COMPUTE})), 3u);
}

// Goal:   a step that was in flight when its lane stopped, and fails later, has failed: also after a reset.
// Method: behind it a start waits for a point that fails, which stops the lane before that start.
TEST_F(Failure, CountsAStepThatFailsOnALaneThatStoppedMeanwhile) {
  for (const bool reset_meanwhile : {false, true}) {
    const std::uint64_t in_flight = stage.start(0, MUSTER_LANE_COMPUTE, stage.kernel());
    const std::uint64_t other = stage.start(0, MUSTER_LANE_COPY, stage.kernel());
    stage.start(0, MUSTER_LANE_COMPUTE, stage.kernel(), {other});
    std::swap(stage.launched[0], stage.launched[1]);
    const Status why(Code::kPeerLost, "the link broke");
    stage.finish_next(&why);
    const std::uint64_t value = shm::point_value(in_flight);
    ASSERT_TRUE(stage.stopped_with(0, MUSTER_LANE_COMPUTE, Code::kDependency));
    ASSERT_EQ((stage.stops.at({0, MUSTER_LANE_COMPUTE}).from), value + 1);
    if (reset_meanwhile) reset(0, MUSTER_LANE_COMPUTE);
    stage.finish_next(&why);
    EXPECT_EQ((stage.stops.at({0, MUSTER_LANE_COMPUTE}).from), value) << "it is pending for ever";
    reset(0, MUSTER_LANE_COMPUTE);
    reset(0, MUSTER_LANE_COPY);
    const std::uint64_t waits = stage.start(0, MUSTER_LANE_COPY, stage.kernel(), {in_flight});
    EXPECT_TRUE(stage.stopped_with(0, MUSTER_LANE_COPY, Code::kDependency)) << "what waits for it fails";
    EXPECT_EQ((stage.stops.at({0, MUSTER_LANE_COPY}).from), shm::point_value(waits));
    reset(0, MUSTER_LANE_COPY);
    stage.start(0, MUSTER_LANE_COMPUTE, stage.kernel());
    stage.finish_all();
    EXPECT_EQ((stage.points.at({0, MUSTER_LANE_COMPUTE})), value + 2);
  }
}

}  // namespace
}  // namespace muster::scheduler
