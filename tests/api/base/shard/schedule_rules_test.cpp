#include "api/base/shard/schedule.hpp"

#include "tests/api/base/shard/recorder.hpp"

#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace muster::shard {
namespace {

using AfterForward = UnitSchedule::AfterForward;

using test::blocks_and_root;
using test::Model;
using test::point_of;
using test::Points;
using test::Timeline;

Points sorted(Points points) {
  std::sort(points.begin(), points.end());
  return points;
}

void expect_state(const Status& status, const std::string& message) {
  EXPECT_EQ(status.code(), Code::kState);
  EXPECT_EQ(status.message(), message);
}

TEST(PointSets, KeepTheLatestOfEachTimeline) {
  PointSet points;
  points.add(point_of(Timeline::kGather, 3));
  points.add(MUSTER_POINT_NONE);
  points.add(point_of(Timeline::kCompute, 1));
  points.add(Points{point_of(Timeline::kGather, 2), point_of(Timeline::kCompute, 7)});
  EXPECT_EQ(sorted({points.points().begin(), points.points().end()}),
            (Points{point_of(Timeline::kCompute, 7), point_of(Timeline::kGather, 3)}));
  points.clear();
  EXPECT_TRUE(points.points().empty());
}

// ---- waits -------------------------------------------------------------------------------------

// Blocks 0 and 1 share one place.
TEST(ScheduleWaits, AGatherWaitsForTheUsesOfItsPlace) {
  Model model(blocks_and_root(2, AfterForward::kKeep, 0), 0);
  const muster_point shards = point_of(Timeline::kOptimiser, 100);
  ASSERT_TRUE(model.schedule.begin_step(shards, false).ok());
  model.begin_forward(0);
  EXPECT_EQ(model.recorder.waits["AGroot"], (Points{shards}));
  const muster_point arrived = model.begin_forward(1);
  const muster_point used = model.end_forward(1);
  model.begin_forward(2);
  EXPECT_EQ(sorted(model.recorder.waits["AG1"]), (Points{used, arrived, shards}));
}

TEST(ScheduleWaits, AReductionWaitsForTheLastUseAndTheOptimiser) {
  Model model(blocks_and_root(1, AfterForward::kKeep), 1);
  const muster_point shards = point_of(Timeline::kOptimiser, 100);
  ASSERT_TRUE(model.schedule.begin_step(shards, false).ok());
  model.forward_all(2);
  model.begin_backward(1);
  const muster_point used = model.compute();
  muster_point reduced = MUSTER_POINT_NONE;
  ASSERT_TRUE(model.schedule.end_backward(1, 0, used, {}, reduced).ok());
  EXPECT_EQ(sorted(model.recorder.waits["RS0"]), (Points{used, shards}));
}

// Goal:   an evaluation waits for the point that it is given, in its gathers and in its reductions.
TEST(ScheduleWaits, AStepWithUnchangedShardsWaitsForItsPointToo) {
  Model model(blocks_and_root(1, AfterForward::kKeep), 1);
  const muster_point made = point_of(Timeline::kOptimiser, 100);
  ASSERT_TRUE(model.schedule.begin_step(made, true).ok());
  model.forward_all(2);
  EXPECT_EQ(model.recorder.waits["AGroot"], (Points{made}));
  EXPECT_EQ(model.recorder.waits["AG0"], (Points{made}));
  model.end_step();
  const muster_point read = point_of(Timeline::kOptimiser, 200);
  ASSERT_TRUE(model.schedule.begin_step(read, true).ok());
  model.forward_all(2);
  model.backward(1);
  const Points& waits = model.recorder.waits["RS0"];
  EXPECT_NE(std::find(waits.begin(), waits.end(), read), waits.end());
}

TEST(ScheduleWaits, ASliceWaitsForTheGather) {
  Model model(blocks_and_root(1, AfterForward::kKeep, 1, AfterForward::kSlice), 1);
  model.begin_step();
  model.begin_forward(0);
  const muster_point arrived = model.begin_forward(1);
  model.end_forward(1);
  EXPECT_EQ(model.recorder.waits["SL0"], (Points{arrived}));
}

TEST(ScheduleWaits, AGatherWaitsForTheSliceOfWhatLayInItsPlace) {
  auto units = blocks_and_root(2, AfterForward::kKeep, 0);
  units[1].after_forward = AfterForward::kSlice;
  Model model(units, 0);
  model.begin_step();
  model.begin_forward(0);
  model.forward(1);
  model.begin_forward(2);
  const Points& waits = model.recorder.waits["AG1"];
  EXPECT_NE(std::find(waits.begin(), waits.end(), point_of(Timeline::kCopy, 1)), waits.end());
}

// A place of gradients that two units share, as the places of the units themselves.
TEST(ScheduleWaits, GradientsWaitForThoseThatWereSentFromTheirPlace) {
  auto units = blocks_and_root(3, AfterForward::kKeep);
  for (std::size_t unit = 2; unit <= 3; ++unit) units[unit].gradient_bytes = 64;
  Model model(units, 1);
  model.begin_step();
  model.forward_all(4);
  EXPECT_EQ(model.begin_backward(3)[1], MUSTER_POINT_NONE);
  model.end_backward(3);
  EXPECT_EQ(model.begin_backward(2)[1], point_of(Timeline::kReduce, 1));
  model.end_backward(2);
  EXPECT_EQ(model.begin_backward(1)[1], MUSTER_POINT_NONE) << "its gradients lie elsewhere";
  model.end_backward(1);
  model.end_step();
  model.begin_step();
  model.forward_all(4);
  EXPECT_EQ(model.begin_backward(3)[1], point_of(Timeline::kReduce, 2));
}

TEST(ScheduleWaits, AReductionOfNothingHidesNoEarlierOne) {
  Model model(blocks_and_root(1, AfterForward::kKeep), 1);
  model.begin_step();
  model.forward_all(2);
  model.backward(1);
  model.recorder.without_gradients = true;
  model.begin_backward(1);
  model.end_backward(1);
  model.recorder.without_gradients = false;
  EXPECT_EQ(model.begin_backward(1)[1], point_of(Timeline::kReduce, 1));
}

TEST(ScheduleWaits, APrefetchInVainIsWaitedForByTheNextGather) {
  Model model(blocks_and_root(2, AfterForward::kKeep), 1);
  model.begin_step();
  model.forward_all(3);
  model.backward(2);
  EXPECT_TRUE(model.schedule.is_whole(1));
  const muster_point vain = point_of(Timeline::kGather, 5);
  model.end_step();
  const auto ended = model.schedule.reduced();
  EXPECT_NE(std::find(ended.begin(), ended.end(), vain), ended.end()) << "it reads shards until then";
  model.begin_step();
  model.begin_forward(0);
  model.begin_forward(1);
  const Points& waits = model.recorder.waits["AG0"];
  EXPECT_NE(std::find(waits.begin(), waits.end(), vain), waits.end());
}

// Goal:   case F26: shards are read after the optimiser, and not after what else runs.
TEST(ScheduleWaits, ShardsThatChangedAreReadAfterTheirPoint) {
  Model model(blocks_and_root(1, AfterForward::kKeep), 1);
  model.begin_step();
  model.forward_all(2);
  model.end_step();
  const muster_point optimiser = point_of(Timeline::kOptimiser, 100);
  model.schedule.shards_change(1, optimiser);
  ASSERT_TRUE(model.schedule.begin_step(MUSTER_POINT_NONE, true).ok());
  model.recorder.froms.clear();
  model.forward_all(2);
  EXPECT_EQ(model.recorder.froms,
            (std::vector<UnitOperations::GatherFrom>{UnitOperations::GatherFrom::kChangedShards}))
      << "the root's have not changed, and it is whole";
  const Points& waits = model.recorder.waits["AG0"];
  EXPECT_NE(std::find(waits.begin(), waits.end(), optimiser), waits.end());
  model.end_step();
  ASSERT_TRUE(model.schedule.begin_step(MUSTER_POINT_NONE, true).ok());
  model.recorder.froms.clear();
  model.forward_all(2);
  EXPECT_EQ(model.recorder.froms,
            (std::vector<UnitOperations::GatherFrom>{UnitOperations::GatherFrom::kShards}));
}

TEST(ScheduleWaits, AllShardsWaitForThePointOfTheStep) {
  Model model(blocks_and_root(1, AfterForward::kKeep), 1);
  const muster_point unit = point_of(Timeline::kAllReduce, 7);
  const muster_point step = point_of(Timeline::kOptimiser, 100);
  model.schedule.shards_change(1, unit);
  ASSERT_TRUE(model.schedule.begin_step(step, false).ok());
  model.forward_all(2);
  EXPECT_EQ(model.recorder.waits["AGroot"], (Points{step}));
  EXPECT_EQ(sorted(model.recorder.waits["AG0"]), (Points{unit, step}));
}

// ---- accumulation ------------------------------------------------------------------------------

TEST(ScheduleAccumulation, EachMicrobatchReducesAndAdds) {
  Model model(blocks_and_root(0, AfterForward::kKeep), 1);
  for (int step = 0; step < 2; ++step) {
    model.begin_step();
    for (int batch = 0; batch < 3; ++batch) {
      model.forward(0);
      model.backward(0);
      EXPECT_EQ(model.recorder.hows.back().add, batch > 0);
      EXPECT_FALSE(model.recorder.hows.back().add_partial);
      EXPECT_TRUE(model.recorder.hows.back().all_reduce);
    }
    model.end_step();
  }
}

TEST(ScheduleAccumulation, ReplicasFollowWithTheLastMicrobatch) {
  Model model(blocks_and_root(0, AfterForward::kKeep), 1);
  model.begin_step();
  for (int batch = 0; batch < 3; ++batch) {
    model.forward(0);
    model.backward(0, {.all_reduce = batch == 2});
    EXPECT_EQ(model.recorder.hows.back().add_partial, batch > 0);
    EXPECT_FALSE(model.recorder.hows.back().add);
  }
  EXPECT_TRUE(model.end_step().empty());
}

// Goal:   what an unused parameter gets where gradients are kept lies there before a kernel adds to it.
TEST(ScheduleAccumulation, ABackwardWaitsForWhatKeepingStarted) {
  Model model(blocks_and_root(0, AfterForward::kKeep), 1);
  model.recorder.keeping_takes_time = true;
  model.begin_step();
  for (std::uint64_t batch = 0; batch < 3; ++batch) {
    model.forward(0);
    EXPECT_EQ(model.begin_backward(0)[1],
              batch == 0 ? MUSTER_POINT_NONE : point_of(Timeline::kReduce, batch));
    model.end_backward(0, {.reduce = batch == 2});
  }
  EXPECT_TRUE(model.end_step().empty());
}

TEST(ScheduleAccumulation, KeptGradientsAreReducedOnce) {
  Model model(blocks_and_root(0, AfterForward::kKeep), 1);
  model.begin_step();
  for (int batch = 0; batch < 3; ++batch) {
    model.forward(0);
    model.backward(0, {.reduce = batch == 2});
  }
  EXPECT_EQ(model.recorder.operations(), "AGroot AGroot AGroot RSroot");
  EXPECT_FALSE(model.recorder.hows.back().add);
}

TEST(ScheduleAccumulation, KeptUnitsAreNotGatheredAgain) {
  Model model(blocks_and_root(0, AfterForward::kKeep), 1);
  model.begin_step();
  for (int batch = 0; batch < 3; ++batch) {
    model.forward(0);
    model.backward(0, {.free = batch == 2});
  }
  EXPECT_EQ(model.recorder.operations(), "AGroot RSroot RSroot RSroot");
}

TEST(ScheduleAccumulation, TheEndOfAStepReducesWhatWasKept) {
  Model model(blocks_and_root(1, AfterForward::kKeep), 1);
  model.begin_step();
  model.forward_all(2);
  model.backward_all(2, {.reduce = false});
  model.recorder.trace();
  const muster_point after = model.compute();
  ASSERT_TRUE(model.schedule.end_step(after).has_value());
  EXPECT_EQ(model.recorder.operations(), "RS0 RSroot");
  const Points& waits = model.recorder.waits["RS0"];
  EXPECT_NE(std::find(waits.begin(), waits.end(), after), waits.end());
  EXPECT_EQ(Points(model.schedule.reduced().begin(), model.schedule.reduced().end()),
            (Points{point_of(Timeline::kAllReduce, 2)}));
}

TEST(ScheduleAccumulation, TheEndOfAStepReducesWhatWasKeptThoughAForwardIsOpen) {
  Model model(blocks_and_root(0, AfterForward::kKeep), 1);
  model.begin_step();
  model.forward(0);
  model.backward(0, {.reduce = false});
  model.begin_forward(0);
  model.recorder.trace();
  EXPECT_TRUE(model.end_step().empty());
  EXPECT_EQ(model.recorder.trace(), "RSroot freeroot");
  model.begin_step();
  EXPECT_TRUE(model.end_step().empty());
  EXPECT_EQ(model.recorder.trace(), "") << "they are gone";
}

TEST(ScheduleAccumulation, TheEndOfAStepEndsAnOpenBackward) {
  Model model(blocks_and_root(1, AfterForward::kKeep), 1);
  model.begin_step();
  model.forward_all(2);
  model.begin_backward(0);
  model.backward(1);
  model.recorder.trace();
  EXPECT_TRUE(model.end_step().empty());
  EXPECT_EQ(model.recorder.trace(), "RSroot freeroot");
}

TEST(ScheduleAccumulation, AReductionOfNothingLeavesNothingToAddTo) {
  Model model(blocks_and_root(0, AfterForward::kKeep), 1);
  model.begin_step();
  for (int batch = 0; batch < 2; ++batch) {
    model.recorder.without_gradients = batch == 0;
    model.forward(0);
    model.backward(0);
    EXPECT_FALSE(model.recorder.hows.back().add);
  }
}

TEST(ScheduleAccumulation, SumsThatNeverReachTheReplicasAreAnError) {
  Model model(blocks_and_root(1, AfterForward::kKeep), 1);
  model.begin_step();
  model.forward_all(2);
  model.begin_backward(0);
  model.backward(1, {.all_reduce = false});
  model.end_backward(0);
  const auto ended = model.schedule.end_step(model.compute());
  ASSERT_FALSE(ended.has_value());
  expect_state(
      ended.error(),
      "the gradients of unit \"0\" were reduced among its shards and never among its replicas; the last "
      "backward of a step must reduce both");
  EXPECT_FALSE(model.schedule.in_step());
  model.begin_step();
  model.forward_all(2);
  model.backward_all(2);
  EXPECT_FALSE(model.recorder.hows.back().add_partial) << "the sums are forgotten";
  EXPECT_TRUE(model.end_step().empty());
}

// ---- outside forward and backward --------------------------------------------------------------

TEST(ScheduleUnshard, HoldsAUnitUntilReshard) {
  Model model(blocks_and_root(2, AfterForward::kKeep), 1);
  model.begin_step();
  muster_point ready = MUSTER_POINT_NONE;
  ASSERT_TRUE(model.schedule.unshard(1, ready).ok());
  EXPECT_EQ(ready, point_of(Timeline::kGather, 1));
  model.forward_all(3);
  EXPECT_TRUE(model.schedule.is_whole(1));
  model.backward_all(3);
  EXPECT_TRUE(model.schedule.is_whole(1));
  const muster_point after = model.compute();
  ASSERT_TRUE(model.schedule.reshard(1, after).ok());
  EXPECT_FALSE(model.schedule.is_whole(1));
  EXPECT_EQ(model.recorder.operations(), "AG0 AGroot AG1 AG1 RS1 RS0 RSroot");
  ASSERT_TRUE(model.schedule.unshard(1, ready).ok());
  const Points& waits = model.recorder.waits["AG0"];
  EXPECT_NE(std::find(waits.begin(), waits.end(), after), waits.end());
}

TEST(ScheduleUnshard, EndsWithTheStep) {
  Model model(blocks_and_root(1, AfterForward::kKeep), 1);
  model.begin_step();
  muster_point ready = MUSTER_POINT_NONE;
  ASSERT_TRUE(model.schedule.unshard(1, ready).ok());
  const muster_point after = model.compute();
  ASSERT_TRUE(model.schedule.end_step(after).has_value());
  EXPECT_FALSE(model.schedule.is_whole(1));
  EXPECT_EQ(model.schedule.counts().whole_bytes, 0u);
  model.begin_step();
  model.forward_all(2);
  const Points& waits = model.recorder.waits["AG0"];
  EXPECT_NE(std::find(waits.begin(), waits.end(), after), waits.end());
  EXPECT_FALSE(model.schedule.is_whole(1)) << "and is freed as usual";
}

// ---- wrong use ---------------------------------------------------------------------------------

TEST(ScheduleErrors, OutsideAStepNameTheCallThatIsMissing) {
  Model model(blocks_and_root(1, AfterForward::kKeep), 1);
  muster_point point = MUSTER_POINT_NONE;
  std::array<muster_point, 2> both{};
  const auto text = [](const char* call) {
    return std::string(call) + " of unit \"0\": no step has begun; call muster_step_begin first";
  };
  expect_state(model.schedule.begin_forward(1, point), text("muster_unit_forward_begin"));
  expect_state(model.schedule.end_forward(1, 0, 1), text("muster_unit_forward_end"));
  expect_state(model.schedule.begin_backward(1, both), text("muster_unit_backward_begin"));
  expect_state(model.schedule.end_backward(1, 0, 1, {}, point), text("muster_unit_backward_end"));
  expect_state(model.schedule.unshard(1, point), text("muster_unit_unshard"));
  expect_state(model.schedule.reshard(1, 1), text("muster_unit_reshard"));
  expect_state(model.schedule.end_step(1).error(), "no step of these units has begun");
}

TEST(ScheduleErrors, StepsDoNotNest) {
  Model model(blocks_and_root(1, AfterForward::kKeep), 1);
  model.begin_step();
  expect_state(model.schedule.begin_step(1, false),
               "the step before has not ended; call muster_step_end first");
}

// Goal:   case F25: the root is known, so a block that runs before it is an error.
TEST(ScheduleErrors, TheRootBeginsFirst) {
  Model model(blocks_and_root(1, AfterForward::kKeep), 1);
  muster_point point = MUSTER_POINT_NONE;
  for (int step = 0; step < 2; ++step) {
    model.begin_step();
    expect_state(
        model.schedule.begin_forward(1, point),
        "muster_unit_forward_begin of unit \"0\": the root, \"root\", must begin first in each step");
    model.forward_all(2);
    model.end_step();
  }
}

TEST(ScheduleErrors, EndsNeedTheirBegin) {
  Model model(blocks_and_root(1, AfterForward::kKeep), 1);
  model.begin_step();
  muster_point point = MUSTER_POINT_NONE;
  std::array<muster_point, 2> both{};
  expect_state(model.schedule.end_forward(1, 0, 1),
               "muster_unit_forward_end of unit \"0\": its forward has not begun");
  expect_state(model.schedule.begin_backward(1, both),
               "muster_unit_backward_begin of unit \"0\": a backward needs a forward before it in the step");
  model.begin_forward(0);
  model.begin_forward(1);
  expect_state(model.schedule.begin_backward(1, both),
               "muster_unit_backward_begin of unit \"0\": its forward has not ended");
  expect_state(model.schedule.reshard(1, 1),
               "muster_unit_reshard of unit \"0\": its forward or backward has not ended");
  model.end_forward(1);
  expect_state(model.schedule.end_backward(1, 0, 1, {}, point),
               "muster_unit_backward_end of unit \"0\": its backward has not begun");
  model.backward(1);
  expect_state(model.schedule.end_backward(1, 0, 1, {}, point),
               "muster_unit_backward_end of unit \"0\": its backward has not begun");
}

TEST(ScheduleErrors, AUnitInUseGivesItsPlaceToNobody) {
  Model model(blocks_and_root(2, AfterForward::kKeep, 0), 0);
  model.begin_step();
  model.begin_forward(0);
  model.begin_forward(1);
  muster_point point = MUSTER_POINT_NONE;
  const std::string text =
      "unit \"1\" is needed while \"0\" is in use, and the two share their place; give both one module, or "
      "end "
      "the use of \"0\" first";
  expect_state(model.schedule.begin_forward(2, point), text);
  expect_state(model.schedule.unshard(2, point), text);
  model.end_forward(1);
  ASSERT_TRUE(model.schedule.unshard(1, point).ok());
  expect_state(model.schedule.begin_forward(2, point), text);
  ASSERT_TRUE(model.schedule.reshard(1, 1).ok());
  model.forward(2);
  model.end_forward(0);
  EXPECT_TRUE(model.end_step().empty()) << "the step is not broken";
}

TEST(ScheduleErrors, KeptGradientsAreNotOverwritten) {
  auto units = blocks_and_root(2, AfterForward::kKeep);
  for (std::size_t unit = 1; unit <= 2; ++unit) units[unit].gradient_bytes = 64;
  Model model(units, 1);
  model.begin_step();
  model.forward_all(3);
  model.backward(2, {.reduce = false});
  std::array<muster_point, 2> both{};
  expect_state(
      model.schedule.begin_backward(1, both),
      "muster_unit_backward_begin of unit \"0\": its gradients would overwrite those that \"1\" keeps; to "
      "keep gradients, make the units with MUSTER_UNITS_KEEP_GRADIENTS");
  model.forward(2);
  model.backward(2);
  model.backward(1);
  EXPECT_TRUE(model.end_step().empty());
}

TEST(ScheduleErrors, TwoBackwardsDoNotShareAPlaceOfGradients) {
  auto units = blocks_and_root(2, AfterForward::kKeep);
  for (std::size_t unit = 1; unit <= 2; ++unit) units[unit].gradient_bytes = 64;
  Model model(units, 1);
  model.begin_step();
  model.forward_all(3);
  model.begin_backward(2);
  std::array<muster_point, 2> both{};
  expect_state(
      model.schedule.begin_backward(1, both),
      "muster_unit_backward_begin of unit \"0\": its gradients would overwrite those of \"1\", whose "
      "backward has not ended");
  model.end_backward(2);
  model.backward(1);
  EXPECT_TRUE(model.end_step().empty());
}

// ---- failures ----------------------------------------------------------------------------------

// Goal:   no operation that fails leaves anything behind after reset().
// Method: let each operation of a step fail in its turn; then reset, and the next step goes as the first.
TEST(ScheduleFailures, EndWithReset) {
  const auto units = blocks_and_root(2, AfterForward::kSlice, 1, AfterForward::kSlice);
  for (const std::string failing : {"AGroot", "AG0", "SL0", "AG1", "SL1", "SLroot", "RS1", "RS0", "RSroot"}) {
    Model model(units, 1);
    model.recorder.failing = failing;
    ASSERT_TRUE(model.schedule.begin_step(MUSTER_POINT_NONE, false).ok());
    Status status;
    muster_point point = MUSTER_POINT_NONE;
    std::array<muster_point, 2> both{};
    const auto go = [&](const Status& next) {
      if (status.ok()) status = next;
      return status.ok();
    };
    const auto play = [&] {
      if (!go(model.schedule.begin_forward(0, point))) return;
      for (std::size_t unit : {1, 2})
        if (!go(model.schedule.begin_forward(unit, point)) || !go(model.schedule.end_forward(unit, 0, 1)))
          return;
      if (!go(model.schedule.end_forward(0, 0, 1)) || !go(model.schedule.begin_backward(0, both))) return;
      for (std::size_t unit : {2, 1})
        if (!go(model.schedule.begin_backward(unit, both)) ||
            !go(model.schedule.end_backward(unit, 0, 1, {}, point)))
          return;
      go(model.schedule.end_backward(0, 0, 1, {}, point));
    };
    play();
    EXPECT_EQ(status.code(), Code::kDevice) << failing;
    EXPECT_EQ(status.message(), failing + " does not start");
    expect_state(model.schedule.begin_forward(1, point),
                 "muster_unit_forward_begin of unit \"0\": this step has failed; call muster_step_abandon");
    expect_state(model.schedule.end_step(1).error(), "no step of these units has begun");
    expect_state(model.schedule.begin_step(1, false),
                 "a step of these units has failed; call muster_step_abandon first");
    model.schedule.reset();
    EXPECT_EQ(model.schedule.counts().whole_bytes, 0u) << failing;
    EXPECT_FALSE(model.schedule.in_step());
    model.recorder.failing.clear();
    model.recorder.trace();
    model.recorder.froms.clear();
    for (std::size_t unit = 0; unit < units.size(); ++unit)
      model.schedule.set_prefetch(unit, UnitSchedule::Pass::kForward, {});
    ASSERT_TRUE(model.schedule.begin_step(MUSTER_POINT_NONE, true).ok());
    model.forward_all(3);
    EXPECT_EQ(model.recorder.operations(), "AGroot AG0 SL0 AG1 SL1 SLroot") << failing;
    EXPECT_EQ(model.recorder.froms,
              (std::vector<UnitOperations::GatherFrom>(3, UnitOperations::GatherFrom::kChangedShards)));
    model.backward_all(3);
    EXPECT_EQ(model.recorder.operations(), "AGroot AG1 AG0 RS1 RS0 RSroot") << failing;
    EXPECT_FALSE(model.recorder.hows.back().add);
    EXPECT_TRUE(model.end_step().empty());
  }
}

TEST(ScheduleFailures, OfTheEndOfAStepBreakIt) {
  Model model(blocks_and_root(1, AfterForward::kKeep), 1);
  model.begin_step();
  model.forward_all(2);
  model.backward_all(2, {.reduce = false});
  model.recorder.failing = "RSroot";
  EXPECT_EQ(model.schedule.end_step(1).error().code(), Code::kDevice);
  EXPECT_EQ(model.schedule.begin_step(1, false).code(), Code::kState);
  model.schedule.reset();
  model.recorder.failing.clear();
  model.recorder.trace();
  model.begin_step();
  EXPECT_TRUE(model.end_step().empty());
  EXPECT_EQ(model.recorder.operations(), "") << "the gradients that were kept are forgotten";
}

}  // namespace
}  // namespace muster::shard
