#include "scheduler/run/epochs.hpp"

#include "tests/scheduler/run/graph_fixture.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace muster::scheduler {
namespace {

using test::Stage;
using test::world_of;
using Lane = std::pair<std::uint32_t, std::uint32_t>;
using Why = Epochs::Why;

CausePtr fault(std::uint64_t number) {
  return std::make_shared<Cause>(Cause{Code::kTimeout, -1, "", number});
}

// Goal:   a member that was there moves past all ends but a loss; one that came late hears of each, in order.
TEST(MemberEpoch, OfOneThatCameLateMovesOnByOneEpochAtATime) {
  Epochs epochs;
  Epochs::Member there, late, again;
  there.begin(epochs);
  epochs.end(fault(1), Why::kOther);
  epochs.end(fault(2), Why::kOther);
  epochs.end(fault(3), Why::kLoss);
  epochs.end(fault(4), Why::kOther);
  late.begin(epochs);
  again.enter(epochs);
  EXPECT_EQ(again.epoch(), 5u);
  EXPECT_TRUE(there.move_on(epochs, 1));
  EXPECT_EQ(there.epoch(), 3u) << "it hears of the loss too";
  for (const std::uint64_t number : {1, 2, 3, 4}) {
    EXPECT_EQ(epochs.cause_of(late.epoch())->fault, number);
    EXPECT_TRUE(late.move_on(epochs, number));
    EXPECT_EQ(late.epoch(), number + 1);
  }
  EXPECT_FALSE(late.move_on(epochs, 4)) << "that epoch has not ended";
  // From now on it is as the others.
  epochs.end(fault(5), Why::kOther);
  epochs.end(fault(6), Why::kOther);
  EXPECT_TRUE(late.move_on(epochs, 5));
  EXPECT_EQ(late.epoch(), 7u);
}

// Goal:   a fault that a latecomer hears of elsewhere moves it on only where it stands: it has not heard of
//         what came before.
TEST(MemberEpoch, OfOneThatCameLateHearsOfWhatEndedItsEpochAlone) {
  Epochs epochs;
  Epochs::Member there, late;
  there.begin(epochs);
  epochs.end(fault(1), Why::kOther);
  epochs.end(fault(2), Why::kOther);
  late.begin(epochs);
  EXPECT_FALSE(late.hear(epochs, 2));
  EXPECT_FALSE(late.hear(epochs, 9));
  EXPECT_TRUE(late.hear(epochs, 1));
  EXPECT_EQ(late.epoch(), 2u);
  EXPECT_TRUE(late.hear(epochs, 2));
  EXPECT_EQ(late.epoch(), 3u);
  EXPECT_TRUE(there.hear(epochs, 2));
  EXPECT_EQ(there.epoch(), 3u);
}

// Goal:   a member that comes in time is not late, whatever ends afterwards.
TEST(MemberEpoch, OfOneThatCameInTimeIsAsTheOthers) {
  Epochs epochs;
  Epochs::Member first;
  first.begin(epochs);
  epochs.end(fault(1), Why::kOther);
  epochs.end(fault(2), Why::kOther);
  EXPECT_TRUE(first.move_on(epochs, 1));
  EXPECT_EQ(first.epoch(), 3u);
}

// Goal:   causes that are no longer kept do not keep a latecomer from getting to the present.
TEST(MemberEpoch, OfOneThatCameVeryLateGetsToThePresent) {
  Epochs epochs;
  Epochs::Member late;
  constexpr std::uint64_t kEnds = 3 * Epochs::kCausesKept;
  for (std::uint64_t number = 1; number <= kEnds; ++number) epochs.end(fault(number), Why::kOther);
  late.begin(epochs);
  for (std::uint64_t heard = 0; heard < kEnds; ++heard)
    EXPECT_TRUE(late.move_on(epochs, epochs.cause_of(late.epoch())->fault));
  EXPECT_EQ(late.epoch(), epochs.present());
}

// Goal:   a rank that attaches for the first time after faults hears of each in order, by an operation each,
//         as those did that were there; then their operations match.
// Method: a deadline, an abort and a loss end three operations; rank 2 attaches after the first, second or
//         third.
TEST(Graph, TellsALateRankOfAllThatEndedBefore) {
  for (const int before : {0, 1, 2}) {
    SCOPED_TRACE(before);
    Stage stage(world_of(3), {{"world", {Rank(0), Rank(1), Rank(2)}}}, {Rank(2)});
    int ends = 0;
    const auto comes = [&] {
      if (ends++ == before) stage.graph.attached(Rank(2));
    };
    const auto start = [&](std::uint32_t rank) {
      stage.start(rank, MUSTER_LANE_SMALL, stage.collective(0, rank, Stage::all_reduce(1)), {}, Nanos(100));
    };
    const auto hears = [&](std::uint32_t rank, Code code) {
      if (!stage.stops.contains(Lane{rank, MUSTER_LANE_SMALL})) start(rank);
      EXPECT_TRUE(stage.stopped_with(rank, MUSTER_LANE_SMALL, code)) << rank;
      stage.graph.reset_lane(Rank(rank), MUSTER_LANE_SMALL, stage.now);
      stage.stops.erase(Lane{rank, MUSTER_LANE_SMALL});
    };
    start(0);
    stage.now += Nanos(101);
    stage.graph.tick(stage.now);
    for (const std::uint32_t rank : {0u, 1u}) hears(rank, Code::kTimeout);
    comes();
    stage.graph.abort({GroupId(0)}, {Code::kAborted, 0, "aborted"}, stage.now);
    for (const std::uint32_t rank : {0u, 1u}) hears(rank, Code::kAborted);
    comes();
    stage.graph.detached(Rank(1), "rank 1 died", stage.now);
    stage.graph.attached(Rank(1));
    hears(0, Code::kPeerLost);
    comes();
    for (const Code code : {Code::kTimeout, Code::kAborted, Code::kPeerLost}) hears(2, code);
    for (const std::uint32_t rank : {0u, 1u, 2u}) start(rank);
    EXPECT_EQ(stage.launched.size(), 1u);
    EXPECT_TRUE(stage.stops.empty());
  }
}

// Goal:   the ranks of the next run get no fault of the last one, not even ranks that were never there. They
//         do get a fault of the next run.
TEST(Graph, BeginsANewRunForAllRanks) {
  Stage stage(world_of(3), {{"world", {Rank(0), Rank(1), Rank(2)}}}, {Rank(2)});
  const auto start = [&](std::uint32_t rank, Nanos deadline) {
    stage.start(rank, MUSTER_LANE_SMALL, stage.collective(0, rank, Stage::all_reduce(1)), {}, deadline);
  };
  for (const std::uint32_t rank : {0u, 1u}) stage.graph.detached(Rank(rank), "left", stage.now);
  stage.graph.begin_run();
  stage.graph.attached(Rank(0));
  start(0, Nanos(100));
  stage.now += Nanos(101);
  stage.graph.tick(stage.now);
  ASSERT_TRUE(stage.stopped_with(0, MUSTER_LANE_SMALL, Code::kTimeout));
  stage.graph.reset_lane(Rank(0), MUSTER_LANE_SMALL, stage.now);
  for (const std::uint32_t rank : {1u, 2u}) {
    stage.graph.attached(Rank(rank));
    start(rank, Nanos(1000));
    EXPECT_TRUE(stage.stopped_with(rank, MUSTER_LANE_SMALL, Code::kTimeout)) << rank;
    stage.graph.reset_lane(Rank(rank), MUSTER_LANE_SMALL, stage.now);
  }
  for (const std::uint32_t rank : {0u, 1u, 2u}) start(rank, Nanos(1000));
  EXPECT_EQ(stage.launched.size(), 1u);
}

}  // namespace
}  // namespace muster::scheduler
