#include "api/base/shard/schedule.hpp"

#include "tests/api/base/shard/recorder.hpp"

#include <algorithm>
#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace muster::shard {
namespace {

using AfterForward = UnitSchedule::AfterForward;

using test::blocks_and_root;
using test::Model;

constexpr UnitSchedule::BackwardEnd kLater{.reduce = false, .all_reduce = false, .free = false};

std::size_t count(const std::string& trace, const std::string& what) {
  std::size_t found = 0;
  for (std::size_t at = trace.find(what); at != std::string::npos; at = trace.find(what, at + 1)) ++found;
  return found;
}

struct CountCase {
  AfterForward root, block;
  std::size_t gathers_in_backward;
};

// Goal:   case F1: L = 4 blocks and a root.
TEST(UnitSchedules, GatherAndReduceEachUnitOnce) {
  constexpr CountCase kCases[] = {
      {AfterForward::kFree, AfterForward::kFree, 5},
      {AfterForward::kSlice, AfterForward::kSlice, 5},
      {AfterForward::kKeep, AfterForward::kFree, 4},
      {AfterForward::kKeep, AfterForward::kKeep, 0},
  };
  for (const CountCase& c : kCases) {
    Model model(blocks_and_root(4, c.root, 1, c.block), 1);
    for (int step = 0; step < 3; ++step) {
      model.begin_step();
      model.forward_all(5);
      EXPECT_EQ(count(model.recorder.trace(), "AG"), 5u);
      model.backward_all(5);
      EXPECT_TRUE(model.end_step().empty());
      const std::string trace = model.recorder.trace();
      EXPECT_EQ(count(trace, "AG"), c.gathers_in_backward);
      EXPECT_EQ(count(trace, "RS"), 5u);
    }
    EXPECT_EQ(model.schedule.counts().reductions, 15u);
    EXPECT_EQ(model.schedule.counts().whole_bytes, 0u);
  }
}

// Goal:   case F2, the root's kind left to the rule: it stays whole.
TEST(UnitSchedules, PrefetchTheBlockBeforeInBackward) {
  Model model(blocks_and_root(3, AfterForward::kKeep), 1);
  for (int step = 0; step < 3; ++step) {
    model.begin_step();
    model.forward_all(4);
    EXPECT_EQ(model.recorder.operations(), "AGroot AG0 AG1 AG2");
    model.backward_all(4);
    model.end_step();
    EXPECT_EQ(model.recorder.operations(), "AG2 AG1 RS2 AG0 RS1 RS0 RSroot");
  }
}

// Goal:   cases F2 and F29: a root of which it is said that it is freed is gathered again in backward.
TEST(UnitSchedules, GatherAFreedRootAgain) {
  for (const AfterForward kind : {AfterForward::kFree, AfterForward::kSlice}) {
    Model model(blocks_and_root(3, kind, 1, kind), 1);
    model.begin_step();
    model.forward_all(4);
    model.recorder.trace();
    model.backward_all(4);
    EXPECT_EQ(model.recorder.operations(), "AGroot AG2 AG1 RS2 AG0 RS1 RS0 RSroot");
  }
}

TEST(UnitSchedules, GatherNothingInBackwardIfAllIsKept) {
  Model model(blocks_and_root(3, AfterForward::kKeep, 1, AfterForward::kKeep), 1);
  model.begin_step();
  model.forward_all(4);
  EXPECT_EQ(model.recorder.trace(), "AGroot AG0 AG1 AG2");
  model.backward_all(4);
  EXPECT_EQ(model.recorder.trace(), "RS2 free2 RS1 free1 RS0 free0 RSroot freeroot");
}

// Goal:   case F2 with activations that are computed again: the sequence is the same.
TEST(UnitSchedules, DoNotMindAForwardInsideBackward) {
  Model model(blocks_and_root(3, AfterForward::kKeep), 1);
  model.begin_step();
  model.forward_all(4);
  model.recorder.trace();
  model.begin_backward(0);
  for (std::size_t unit = 3; unit > 0; --unit) {
    model.begin_backward(unit);
    model.forward(unit);
    EXPECT_TRUE(model.schedule.is_whole(unit));
    model.end_backward(unit);
  }
  model.end_backward(0);
  model.end_step();
  EXPECT_EQ(model.recorder.operations(), "AG2 AG1 RS2 AG0 RS1 RS0 RSroot");
  model.begin_step();
  EXPECT_EQ(model.schedule.counts().order_changes, 0u);
}

// Goal:   case F3: two forwards, then one backward through both.
TEST(UnitSchedules, GoBackThroughEachForward) {
  Model model(blocks_and_root(3, AfterForward::kKeep), 1);
  model.begin_step();
  model.forward_all(4);
  model.forward_all(4);
  EXPECT_EQ(model.recorder.operations(), "AGroot AG0 AG1 AG2 AG0 AG1 AG2");
  model.begin_backward(0);
  model.backward_blocks(4);
  model.backward_blocks(4);
  model.end_backward(0);
  model.end_step();
  EXPECT_EQ(model.recorder.operations(), "AG2 AG1 RS2 AG0 RS1 RS0 AG2 AG1 RS2 AG0 RS1 RS0 RSroot");
  EXPECT_FALSE(model.recorder.hows.front().add);
  EXPECT_TRUE(model.recorder.hows[3].add) << "the second RS2";
  EXPECT_FALSE(model.recorder.hows.back().add) << "RSroot";
}

// Goal:   case F4: the two blocks after it in forward, and the two before it in backward.
TEST(UnitSchedules, PrefetchTheListsThatAreSaid) {
  Model model(blocks_and_root(4, AfterForward::kFree, 2), 2);
  model.schedule.set_prefetch(0, UnitSchedule::Pass::kForward, {});
  model.schedule.set_prefetch(0, UnitSchedule::Pass::kBackward, {});
  for (std::size_t unit = 1; unit <= 4; ++unit) {
    std::vector<std::size_t> after;
    std::vector<std::size_t> before;
    for (std::size_t i = 1; i <= 2; ++i) {
      if (unit + i <= 4) after.push_back(unit + i);
      if (unit > i) before.push_back(unit - i);
    }
    model.schedule.set_prefetch(unit, UnitSchedule::Pass::kForward, after);
    model.schedule.set_prefetch(unit, UnitSchedule::Pass::kBackward, before);
  }
  for (int step = 0; step < 2; ++step) {
    model.begin_step();
    model.forward_all(5);
    EXPECT_EQ(model.recorder.trace(), "AGroot AG0 AG1 AG2 free0 AG3 free1 free2 free3 freeroot");
    model.backward_all(5);
    model.end_step();
    EXPECT_EQ(model.recorder.operations(), "AGroot AG3 AG2 AG1 RS3 AG0 RS2 RS1 RS0 RSroot");
  }
  EXPECT_EQ(model.schedule.counts().prefetches_skipped, 0u);
}

TEST(UnitSchedules, PrefetchInForwardWhatTheStepBeforeUsed) {
  Model model(blocks_and_root(4, AfterForward::kKeep), 1);
  model.begin_step();
  model.forward_all(5);
  EXPECT_EQ(model.recorder.trace(), "AGroot AG0 free0 AG1 free1 AG2 free2 AG3 free3");
  model.backward_all(5);
  model.end_step();
  model.recorder.trace();
  const std::uint64_t demands = model.schedule.counts().demands;
  model.begin_step();
  model.forward_all(5);
  EXPECT_EQ(model.recorder.trace(), "AGroot AG0 AG1 free0 AG2 free1 AG3 free2 free3");
  EXPECT_EQ(model.schedule.counts().demands, demands + 1) << "the root alone";
  EXPECT_EQ(model.schedule.counts().order_changes, 0u);
}

// Units 1 and 3 share a place.
TEST(UnitSchedules, GatherOnDemandInAStepWhoseOrderChanged) {
  Model model(blocks_and_root(4, AfterForward::kKeep), 1);
  model.begin_step();
  model.forward_all(5);
  model.end_step();
  model.recorder.trace();
  model.begin_step();
  model.begin_forward(0);
  for (const std::size_t unit : {1, 4, 2, 3}) model.forward(unit);
  model.end_forward(0);
  EXPECT_EQ(model.recorder.trace(), "freeroot AGroot AG0 AG1 free0 free1 AG3 free3 AG1 free1 AG2 free2");
  EXPECT_EQ(model.schedule.counts().order_changes, 1u);
}

// Goal:   case F5: units 0, 1a and 1b; a loss behind each branch, and 1b's goes back first.
TEST(UnitSchedules, KeepAPrefetchInVainForTheNextBackward) {
  Model model(blocks_and_root(3, AfterForward::kKeep), 1);
  model.begin_step();
  model.forward_all(4);
  model.recorder.trace();
  model.begin_backward(0);
  model.backward(3);
  EXPECT_EQ(model.recorder.trace(), "AG2 AG1 RS2 free2") << "1a, the unit named 1, is prefetched in vain";
  model.backward(1);
  EXPECT_EQ(model.recorder.trace(), "AG0 RS0 free0");
  EXPECT_TRUE(model.schedule.is_whole(2));
  model.backward(2);
  model.backward(1);
  EXPECT_EQ(model.recorder.trace(), "AG0 RS1 free1 RS0 free0") << "1a is not gathered again";
  EXPECT_TRUE(model.recorder.hows.back().add);
  model.end_backward(0);
  EXPECT_TRUE(model.end_step().empty());
  EXPECT_EQ(model.schedule.counts().whole_bytes, 0u);
}

TEST(UnitSchedules, DropWhatWasPrefetchedInVain) {
  Model model(blocks_and_root(3, AfterForward::kKeep), 1);
  model.begin_step();
  model.forward_all(4);
  model.recorder.trace();
  model.backward(3);
  EXPECT_EQ(model.recorder.trace(), "AG2 AG1 RS2 free2");
  EXPECT_TRUE(model.end_step().empty());
  EXPECT_EQ(model.recorder.trace(), "free1") << "the root had no backward";
  EXPECT_EQ(model.schedule.counts().whole_bytes, 64u);
}

// Goal:   case F6: tok_emb, norm and output in the root, and as two units.
TEST(UnitSchedules, HoldLessIfAnEmbeddingIsAUnit) {
  constexpr std::uint64_t kEmbedding = 262'144'000;
  Model root({{.name = "root", .bytes = 524'296'192, .after_forward = AfterForward::kKeep, .root = true}}, 1);
  root.begin_step();
  root.forward(0);
  EXPECT_EQ(root.schedule.counts().whole_bytes, 524'296'192u);
  root.backward(0);
  EXPECT_EQ(root.schedule.counts().whole_bytes, 0u);
  EXPECT_EQ(root.schedule.counts().whole_bytes_peak, 524'296'192u);

  Model wrapped({{.name = "tok_emb", .bytes = kEmbedding},
                 {.name = "norm, output", .module = 1, .bytes = kEmbedding + 8192}},
                0);
  wrapped.begin_step();
  wrapped.forward(0);
  wrapped.forward(1);
  wrapped.backward(1);
  wrapped.backward(0);
  EXPECT_EQ(wrapped.schedule.counts().whole_bytes_peak, 524'296'192u - kEmbedding);
  EXPECT_EQ(wrapped.recorder.operations(),
            "AGtok_emb AGnorm, output AGnorm, output RSnorm, output AGtok_emb RStok_emb");
}

// Goal:   case F13: how many gathered blocks there are at once, beside the root.
TEST(UnitSchedules, HoldOneBlockMoreThanTheirDepth) {
  for (const std::size_t depth : {0, 1, 2, 3}) {
    Model model(blocks_and_root(6, AfterForward::kKeep, depth), depth);
    for (int step = 0; step < 3; ++step) {
      model.begin_step();
      model.forward_all(7);
      model.backward_all(7);
      model.end_step();
    }
    EXPECT_EQ(model.schedule.counts().whole_bytes_peak, 64 * (1 + 1 + depth));
    EXPECT_EQ(model.schedule.counts().prefetches > 0, depth > 0);
  }
}

TEST(UnitSchedules, SkipAPrefetchWithoutRoom) {
  Model model(blocks_and_root(3, AfterForward::kKeep, 0), 1);
  model.begin_step();
  model.forward_all(4);
  model.recorder.trace();
  model.backward_all(4);
  model.end_step();
  EXPECT_EQ(model.recorder.operations(), "AG2 RS2 AG1 RS1 AG0 RS0 RSroot");
  EXPECT_EQ(model.schedule.counts().prefetches_skipped, 2u);
}

TEST(UnitSchedules, TakeThePlaceOfWhatIsWholeAndNotInUse) {
  Model model(blocks_and_root(2, AfterForward::kKeep, 0), 0);
  model.schedule.set_after_forward(1, AfterForward::kKeep);
  model.begin_step();
  model.begin_forward(0);
  model.forward(1);
  EXPECT_TRUE(model.schedule.is_whole(1));
  model.forward(2);
  EXPECT_EQ(model.recorder.trace(), "AGroot AG0 free0 AG1 free1");
}

std::vector<UnitSchedule::Facts> with_a_list() {
  auto units = blocks_and_root(3, AfterForward::kKeep);
  units[3].parts = 2;
  return units;
}

// Goal:   case F19: a unit of two modules begins with the first and ends with the last.
TEST(UnitSchedules, EndAUnitWithItsLastPart) {
  Model model(with_a_list(), 1);
  model.begin_step();
  model.begin_forward(0);
  model.forward(3);
  EXPECT_TRUE(model.schedule.is_whole(3));
  model.begin_forward(3);
  model.end_forward(3, 1);
  EXPECT_FALSE(model.schedule.is_whole(3));
  model.end_forward(0);
  model.begin_backward(3);
  EXPECT_EQ(model.end_backward(3, {}, 1), MUSTER_POINT_NONE);
  EXPECT_EQ(model.recorder.operations(), "AGroot AG2 AG2");
  model.begin_backward(3);
  EXPECT_NE(model.end_backward(3, {}, 0), MUSTER_POINT_NONE);
  EXPECT_EQ(model.recorder.trace(), "RS2 free2");
  EXPECT_TRUE(model.end_step().empty());
}

// Goal:   case F19: one part never runs. The unit goes back without it, and the next step goes as usual.
TEST(UnitSchedules, NameTheUnitOfWhichAPartNeverRan) {
  Model model(with_a_list(), 1);
  for (int step = 0; step < 2; ++step) {
    model.begin_step();
    model.begin_forward(0);
    for (const std::size_t unit : {1, 2, 3}) model.forward(unit);
    model.end_forward(0);
    EXPECT_TRUE(model.schedule.is_whole(3)) << "its forward is open";
    model.recorder.trace();
    model.begin_backward(0);
    for (const std::size_t unit : {3, 2, 1}) EXPECT_NE(model.backward(unit), MUSTER_POINT_NONE);
    model.end_backward(0);
    EXPECT_EQ(model.end_step(), (std::vector<std::size_t>{3}));
    EXPECT_EQ(model.recorder.operations(), "AG1 RS2 AG0 RS1 RS0 RSroot");
  }
  model.begin_step();
  model.begin_forward(0);
  model.forward(3);
  model.end_forward(0);
  EXPECT_EQ(model.end_step(), (std::vector<std::size_t>{3})) << "without a backward";
  model.begin_step();
  model.begin_forward(0);
  model.forward(3);
  model.begin_forward(3);
  model.end_forward(3, 1);
  model.end_forward(0);
  EXPECT_TRUE(model.end_step().empty());
}

// A part ran, and nothing came of it: no gradient goes back through it.
TEST(UnitSchedules, ReduceAtTheEndAUnitOfWhichAPartNeverWentBack) {
  Model model(with_a_list(), 1);
  model.begin_step();
  model.begin_forward(0);
  model.forward(3);
  model.begin_forward(3);
  model.end_forward(3, 1);
  model.end_forward(0);
  model.recorder.trace();
  EXPECT_EQ(model.backward(3), MUSTER_POINT_NONE);
  EXPECT_EQ(model.end_step(), (std::vector<std::size_t>{3}));
  EXPECT_EQ(model.recorder.operations(), "AG2 RS2");
  EXPECT_FALSE(model.schedule.is_whole(3));
}

// Goal:   case F19: the last module of a unit, a loss, runs and goes back once for each chunk.
TEST(UnitSchedules, ReduceOnceAfterAChunkedLoss) {
  Model model(with_a_list(), 1);
  model.begin_step();
  model.begin_forward(0);
  model.forward(3);
  for (int chunk = 0; chunk < 3; ++chunk) {
    model.begin_forward(3);
    model.end_forward(3, 1);
    model.begin_backward(3);
    EXPECT_EQ(model.end_backward(3, {}, 1), MUSTER_POINT_NONE);
  }
  model.begin_backward(3);
  EXPECT_NE(model.end_backward(3, {}, 0), MUSTER_POINT_NONE);
  EXPECT_EQ(model.recorder.operations(), "AGroot AG2 AG2 RS2");
  model.end_forward(0);
  EXPECT_TRUE(model.end_step().empty());
}

TEST(UnitSchedules, ReduceOnceIfAllChunksRunBeforeTheyGoBack) {
  auto units = with_a_list();
  units[3].after_forward = AfterForward::kKeep;
  Model model(units, 1);
  model.begin_step();
  model.begin_forward(0);
  model.forward(3);
  for (int chunk = 0; chunk < 3; ++chunk) {
    model.begin_forward(3);
    model.end_forward(3, 1);
  }
  model.end_forward(0);
  for (int chunk = 0; chunk < 3; ++chunk) {
    model.begin_backward(3);
    EXPECT_EQ(model.end_backward(3, {}, 1), MUSTER_POINT_NONE);
  }
  model.begin_backward(3);
  EXPECT_NE(model.end_backward(3), MUSTER_POINT_NONE);
  EXPECT_EQ(model.recorder.operations(), "AGroot AG2 RS2");
  EXPECT_TRUE(model.end_step().empty());
}

// Goal:   case F17: a unit that no rank used, and one whose parameters got no gradients.
TEST(UnitSchedules, ReduceNothingWithoutGradients) {
  Model model(blocks_and_root(3, AfterForward::kKeep), 1);
  model.begin_step();
  model.begin_forward(0);
  model.forward(1);
  model.end_forward(0);
  model.recorder.without_gradients = true;
  EXPECT_EQ(model.backward(1), MUSTER_POINT_NONE);
  model.recorder.without_gradients = false;
  EXPECT_TRUE(model.end_step().empty());
  EXPECT_EQ(model.recorder.operations(), "AGroot AG0 AG0");
  EXPECT_EQ(model.schedule.counts().reductions, 0u);
  EXPECT_TRUE(model.schedule.reduced().empty());
}

TEST(UnitSchedules, DoNotReduceWhatDoesNotTrain) {
  auto units = blocks_and_root(2, AfterForward::kKeep);
  units[1].trains = false;
  Model model(units, 1);
  model.begin_step();
  model.forward_all(3);
  model.backward_all(3);
  model.end_step();
  EXPECT_EQ(model.recorder.operations(), "AGroot AG0 AG1 AG1 AG0 RS1 RSroot");
}

TEST(UnitSchedules, DoNotGatherForABackwardThatDoesNotRead) {
  auto units = blocks_and_root(2, AfterForward::kKeep);
  units[1].whole_in_backward = false;
  Model model(units, 1);
  model.begin_step();
  model.forward_all(3);
  model.recorder.trace();
  model.begin_backward(0);
  model.backward(2);
  EXPECT_EQ(model.begin_backward(1)[0], MUSTER_POINT_NONE);
  model.forward(1);  // activations that are computed again
  EXPECT_TRUE(model.schedule.is_whole(1));
  model.end_backward(1);
  EXPECT_EQ(model.recorder.trace(), "AG1 RS1 free1 AG0 RS0 free0");
}

// Goal:   case F21: the ranks of a smaller group keep the unit between them.
TEST(UnitSchedules, GatherSlicesInBackward) {
  Model model(blocks_and_root(2, AfterForward::kKeep, 1, AfterForward::kSlice), 1);
  model.schedule.set_after_forward(0, AfterForward::kKeep);
  const auto units = blocks_and_root(2, AfterForward::kKeep, 1, AfterForward::kSlice);
  for (int step = 0; step < 2; ++step) {
    model.recorder.froms.clear();
    model.begin_step();
    model.begin_forward(0);
    model.forward(1);
    EXPECT_EQ(model.schedule.counts().whole_bytes, 64u + (step == 0 ? 16 : 80));
    model.forward(2);
    model.end_forward(0);
    EXPECT_EQ(model.schedule.counts().whole_bytes, 64u + 16 + 16);
    EXPECT_EQ(model.recorder.operations(), step == 0 ? "AGroot AG0 SL0 AG1 SL1" : "AGroot AG0 AG1 SL0 SL1");
    EXPECT_EQ(model.recorder.froms,
              (std::vector<UnitOperations::GatherFrom>(3, UnitOperations::GatherFrom::kChangedShards)));
    model.recorder.froms.clear();
    model.backward_all(3);
    EXPECT_EQ(model.recorder.operations(), "AG1 AG0 RS1 RS0 RSroot");
    EXPECT_EQ(model.recorder.froms,
              (std::vector<UnitOperations::GatherFrom>(2, UnitOperations::GatherFrom::kSlices)));
    model.end_step();
    EXPECT_EQ(model.schedule.counts().whole_bytes, 0u);
  }
}

// Goal:   case F25: a forward without backward. A root that is kept stays whole until it is freed.
TEST(UnitSchedules, KeepARootThatGoesForwardAlone) {
  Model model(blocks_and_root(2, AfterForward::kKeep), 1);
  model.begin_step();
  model.forward_all(3);
  model.forward_all(3);
  EXPECT_EQ(model.recorder.operations(), "AGroot AG0 AG1 AG0 AG1");
  EXPECT_TRUE(model.schedule.is_whole(0));
  EXPECT_TRUE(model.schedule.reshard(0, model.compute()).ok());
  EXPECT_FALSE(model.schedule.is_whole(0));
  EXPECT_TRUE(model.end_step().empty());
}

// Goal:   case F27: 4 microbatches of a pipeline stage that keeps its units.
TEST(UnitSchedules, GatherAndReduceOnceForAllMicrobatches) {
  Model model(blocks_and_root(2, AfterForward::kKeep, 1, AfterForward::kKeep), 1);
  for (int step = 0; step < 2; ++step) {
    model.begin_step();
    for (int batch = 0; batch < 4; ++batch) model.forward_all(3);
    for (int batch = 0; batch < 4; ++batch) {
      model.backward_all(3, batch < 3 ? kLater : UnitSchedule::BackwardEnd{});
      EXPECT_EQ(model.schedule.is_whole(1), batch < 3);
    }
    EXPECT_TRUE(model.end_step().empty());
    EXPECT_EQ(model.recorder.operations(), "AGroot AG0 AG1 RS1 RS0 RSroot");
  }
}

TEST(UnitSchedules, GatherUnitsOfAModuleTogether) {
  auto units = blocks_and_root(4, AfterForward::kKeep, 3);
  units[2].module = units[1].module;
  units[4].module = units[3].module;
  Model model(units, 1);
  model.begin_step();
  model.forward_all(5);
  model.recorder.trace();
  model.backward_all(5);
  model.end_step();
  EXPECT_EQ(model.recorder.operations(), "AG3 AG2 AG1 AG0 RS3 RS2 RS1 RS0 RSroot");
  model.begin_step();
  model.forward_all(5);
  EXPECT_EQ(model.recorder.operations(), "AGroot AG0 AG1 AG2 AG3");
}

}  // namespace
}  // namespace muster::shard
