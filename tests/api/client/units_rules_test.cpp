// Units by a real node's ranks: calls out of order, ranks that differ, failures, and what follows them.
#include <muster/units.h>

#include "tests/api/client/units_model.hpp"

#include <algorithm>
#include <memory>
#include <vector>

#include <gmock/gmock.h>

namespace muster::test {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::HasSubstr;

using UnitRules = RunningRanks;

TEST_F(UnitRules, RefuseCallsOutOfOrder) {
  with_ranks(1, [&](Member& member) {
    OneUnit unit(member, MUSTER_UNIT_OPTIONS_INIT);
    const auto refused = [&](muster_status_t status, const char* text) {
      EXPECT_EQ(status, MUSTER_ERR_STATE);
      EXPECT_THAT(muster_last_error(), HasSubstr(text));
    };
    muster_tensor tensor{};
    refused(unit.forward(), "unit \"unit\" is used before the first muster_step_begin");
    refused(unit.step_end(), "no step of these units has begun");
    refused(muster_unit_tensor(unit.units, 0, 0, MUSTER_UNIT_WHOLE, &tensor), "has no place yet");
    const auto again = [&] {
      refused(unit.forward(), "this step has failed; call muster_step_abandon");
      ok(muster_step_abandon(unit.units));
      ok(unit.step());
    };
    ok(unit.step());
    refused(unit.step(), "the step before has not ended");
    refused(unit.forward_end(), "muster_unit_forward_end of unit \"unit\": its forward has not begun");
    again();
    refused(unit.backward(), "a backward needs a forward before it in the step");
    again();
    refused(unit.backward_end(), "its backward has not begun");
    again();
    refused(muster_unit_unused(unit.units, 0, 0), "its backward has not begun");
    again();
    ok(unit.forward());
    refused(unit.backward(), "its forward has not ended");
    again();
    ok(unit.forward());
    ok(unit.forward_end());
    ok(unit.backward());
    ok(unit.backward_end());
    refused(muster_unit_changed(unit.units, 0, MUSTER_POINT_NONE), "change between two steps");
    ok(unit.step_end());
    refused(unit.forward(), "no step has begun; call muster_step_begin first");
    muster_layout* layout = nullptr;
    ok(muster_unit_layout(unit.units, 0, 1, &layout));
    std::int64_t shape[MUSTER_TENSOR_DIMS_MAX] = {};
    ok(muster_layout_local_shape(layout, 0, shape));
    EXPECT_EQ(shape[0], 10);
    ok(muster_layout_destroy(layout));
    EXPECT_EQ(muster_unit_layout(unit.units, 0, 2, &layout), MUSTER_ERR_BAD_ARGUMENT);
  });
}

TEST_F(UnitRules, RefuseASecondReductionWithoutMemoryForIt) {
  with_ranks(2, [&](Member& member) {
    OneUnit unit(member, MUSTER_UNIT_OPTIONS_INIT);
    ok(unit.step());
    await_all(member);
    for (int i = 0; i < 2; ++i) {
      ok(unit.forward());
      ok(unit.forward_end());
      ok(unit.backward());
      if (i == 0) ok(unit.backward_end());
    }
    EXPECT_EQ(unit.backward_end(), MUSTER_ERR_STATE);
    EXPECT_THAT(muster_last_error(), HasSubstr("is reduced twice in a step; make the set with"));
    EXPECT_EQ(unit.step_end(), MUSTER_ERR_STATE);
    ok(muster_step_abandon(unit.units));
    ok(unit.step());
    ok(unit.step_end());
  });
}

// Goal:   a rank that fails directly after its first muster_step_begin does not end that of another rank,
//         which may still be in it. So both give up the same step, and begin the next one together.
TEST_F(UnitRules, BreakNoFirstStepThatAnotherRankBegins) {
  with_ranks(2, [&](Member& member) {
    for (int turn = 0; turn < 20; ++turn) {
      OneUnit unit(member, MUSTER_UNIT_OPTIONS_INIT);
      ok(unit.step());
      if (member.rank == 1) {
        EXPECT_EQ(unit.backward(), MUSTER_ERR_STATE);
      } else {
        muster_point ready = MUSTER_POINT_NONE;
        muster_status_t status = muster_unit_forward_begin(unit.units, 0, &ready);
        if (status == MUSTER_OK) status = muster_point_wait(member.session, ready, -1);
        EXPECT_EQ(status, MUSTER_ERR_ABORTED) << muster_last_error();
      }
      ok(muster_step_abandon(unit.units));
      ok(unit.step());
      ok(unit.forward());
      ok(unit.forward_end());
      ok(unit.step_end());
    }
  });
}

// Makes units of one vector or matrix over dp_shard=4,tp=2, to see which are refused.
class Attempts {
 public:
  explicit Attempts(Member& member) : session_(member.session) {
    ok(muster_units_create(session_, nullptr, &units_));
    rows = layout({6, 6}, 0, false);
    columns = layout({6, 6}, 1, false);
    cut = layout({6, 6}, 0, true);
    many = layout({600, 4}, 1, false);
    next();
  }
  Attempts(const Attempts&) = delete;
  Attempts& operator=(const Attempts&) = delete;
  ~Attempts() {
    for (muster_layout* layout : {rows, columns, cut, many}) ok(muster_layout_destroy(layout));
    ok(muster_units_destroy(units_));
  }
  // Makes the unit, and then begins to describe another one.
  void expect(muster_status_t status, const char* text) {
    muster_unit unit = 0;
    options.parameters = parameters.data();
    options.parameter_count = static_cast<std::uint32_t>(parameters.size());
    EXPECT_EQ(muster_unit_create(units_, &options, &unit), status) << text;
    if (status != MUSTER_OK) {
      EXPECT_THAT(muster_last_error(), HasSubstr(text));
    }
    next();
  }

  muster_layout *rows = nullptr, *columns = nullptr, *cut = nullptr, *many = nullptr;
  muster_unit_options options = MUSTER_UNIT_OPTIONS_INIT;
  std::vector<muster_parameter> parameters;

 private:
  void next() {
    options = MUSTER_UNIT_OPTIONS_INIT;
    options.name = "b";
    options.shard = "dp_shard";
    parameters = {{"v", rows, MUSTER_F32, 0}};
  }
  muster_layout* layout(std::vector<std::int64_t> shape, std::int32_t dim, bool tp) {
    muster_layout_options said = MUSTER_LAYOUT_OPTIONS_INIT;
    said.dims = static_cast<std::int32_t>(shape.size());
    std::ranges::copy(shape, said.shape);
    said.axis_count = tp ? 2 : 1;
    said.axes[0].name = "dp_shard";
    said.axes[0].placement = MUSTER_SHARD;
    said.axes[0].dim = dim;
    said.axes[1].name = "tp";
    said.axes[1].placement = tp ? MUSTER_SHARD : MUSTER_REPLICATE;
    muster_layout* made = nullptr;
    ok(muster_layout_create(session_, &said, &made));
    return made;
  }

  muster_session* session_;
  muster_units* units_ = nullptr;
};

// Goal:   refusals name unit and parameter; among them those of cases F8 (a dim that is not 0 and does not
//         divide), F18 (a parameter in two units) and F21 (slices of what tp cuts).
TEST_F(UnitRules, RefuseParametersThatCannotBeInAUnit) {
  mesh = "dp_shard=4,tp=2";
  with_ranks(8, [&](Member& member) {
    Attempts attempts(member);
    muster_unit_options& options = attempts.options;
    std::vector<muster_parameter>& parameters = attempts.parameters;
    parameters[0].dtype = MUSTER_I32;
    attempts.expect(MUSTER_ERR_BAD_ARGUMENT, "which has no gradients");
    parameters.push_back({"u", attempts.rows, MUSTER_BF16, 0});
    attempts.expect(MUSTER_ERR_BAD_ARGUMENT,
                    "trainable parameters have one dtype, but \"v\" has f32 and \"u\" has bf16");
    parameters.push_back(parameters.front());
    attempts.expect(MUSTER_ERR_BAD_ARGUMENT, "parameter \"v\" of unit \"b\": another one has this name");
    parameters[0].layout = attempts.columns;
    attempts.expect(MUSTER_ERR_BAD_ARGUMENT, "4 ranks do not divide dim 1 of the tensor [6, 6] evenly");
    parameters = {{"v", attempts.many, MUSTER_F32, 0}, {"u", attempts.many, MUSTER_F32, 0}};
    attempts.expect(MUSTER_ERR_NO_RESOURCE,
                    "the shards of unit \"b\" lie in 4800 pieces, and one operation has at most 4096");
    parameters[0].name = "v\nw";
    attempts.expect(MUSTER_ERR_BAD_ARGUMENT,
                    "the name of parameters[0] of unit \"b\" has control characters");
    parameters[0].layout = nullptr;
    attempts.expect(MUSTER_ERR_BAD_ARGUMENT, "it has no layout");
    options.shard = "dp_shar";
    attempts.expect(MUSTER_ERR_NOT_FOUND, "dp_shar");
    options.shard = "dp_shard_cp";
    attempts.expect(MUSTER_ERR_BAD_ARGUMENT, "its layout has no axis \"dp_shard_cp\"");
    options.after_forward = 2;
    parameters[0].layout = attempts.cut;
    attempts.expect(MUSTER_ERR_UNSUPPORTED, "another axis shards \"v\" too");
    attempts.expect(MUSTER_OK, "");
    options.name = "c";
    attempts.expect(MUSTER_ERR_BAD_ARGUMENT, "parameter \"v\" of unit \"c\" is in unit \"b\" already");
    meet_and_leave(member);
  });
}

TEST_F(UnitRules, RefuseWhatCannotBeAUnit) {
  mesh = "dp_shard=4,tp=2";
  with_ranks(8, [&](Member& member) {
    Attempts attempts(member);
    muster_unit_options& options = attempts.options;
    options.name = nullptr;
    attempts.expect(MUSTER_ERR_BAD_ARGUMENT, "the unit has no name");
    options.size = 8;
    attempts.expect(MUSTER_ERR_BAD_ARGUMENT, "muster_unit_options has size 8");
    options.after_forward = 3;
    attempts.expect(MUSTER_ERR_BAD_ARGUMENT, "after_forward is 3; possible are");
    options.whole_dtype = MUSTER_I8;
    attempts.expect(MUSTER_ERR_BAD_ARGUMENT, "whole_dtype is 8");
    options.divisor = -1;
    attempts.expect(MUSTER_ERR_BAD_ARGUMENT, "divisor is -1");
    options.parts = 65;
    attempts.expect(MUSTER_ERR_BAD_ARGUMENT, "parts is 65; 1 to 64 are possible");
    options.flags = MUSTER_UNIT_ROOT;
    options.module = "m";
    attempts.expect(MUSTER_OK, "");
    attempts.expect(MUSTER_ERR_BAD_ARGUMENT, "there is a unit \"b\" already");
    const auto call = [&](const char* name) {
      options.name = name;
      attempts.parameters[0].name = name;
    };
    call("c");
    options.flags = MUSTER_UNIT_ROOT;
    attempts.expect(MUSTER_ERR_BAD_ARGUMENT, "unit \"c\" is to be the root, but \"b\" is");
    call("c");
    attempts.expect(MUSTER_OK, "");
    call("d");
    options.module = "m";
    attempts.expect(MUSTER_ERR_BAD_ARGUMENT, "but unit \"c\" of another module is between them");
    meet_and_leave(member);
  });
}

// Goal:   no gradient is a sum of different parts: also where products of dims have one in common.
TEST_F(UnitRules, RefuseToReduceOverADimThatCutsAParameter) {
  mesh = "dp_replicate=2,dp_shard=2,tp=2";
  with_ranks(8, [&](Member& member) {
    Attempts attempts(member);
    muster_unit_options& options = attempts.options;
    const auto refused = [&](const char* replicate, muster_layout* layout, const char* text) {
      options.replicate = replicate;
      attempts.parameters[0].layout = layout;
      attempts.expect(MUSTER_ERR_BAD_ARGUMENT, text);
    };
    refused(
        "tp", attempts.cut,
        "parameter \"v\" of unit \"b\": its layout shards it over \"tp\", but its gradient is reduced over "
        "\"tp\"");
    refused("dp", attempts.rows, "shards it over \"dp_shard\", but its gradient is reduced over \"dp\"");
    refused("weight", attempts.cut,
            "shards it over \"dp_shard\", but its gradient is reduced over \"weight\"");
    options.shard = nullptr;
    refused("dp_shard", attempts.rows, "but its gradient is reduced over \"dp_shard\"");
    options.tensor = "tp";
    attempts.parameters[0].flags = MUSTER_PARAMETER_SUMMED_OVER_TP;
    refused(nullptr, attempts.cut, "but its gradient is summed over \"tp\"");

    options.replicate = "dp_replicate";
    options.tensor = "tp";
    attempts.parameters = {{"v", attempts.cut, MUSTER_F32, 0},
                           {"w", attempts.rows, MUSTER_F32, MUSTER_PARAMETER_SUMMED_OVER_TP}};
    attempts.expect(MUSTER_OK, "");
    options.name = "c";
    options.replicate = "tp";
    attempts.parameters = {{"f", attempts.cut, MUSTER_F32, MUSTER_PARAMETER_FROZEN}};
    attempts.expect(MUSTER_OK, "it has no gradient");
    meet_and_leave(member);
  });
}

// Goal:   ranks that have made different units hear what differs, all of them, before a byte moves.
TEST_F(UnitRules, SayHowRanksDiffer) {
  with_ranks(3, [&](Member& member) {
    muster_unit_options options = MUSTER_UNIT_OPTIONS_INIT;
    if (member.rank == 2) options.reduce_dtype = MUSTER_BF16;
    {
      OneUnit unit(member, options);
      EXPECT_EQ(unit.step(), MUSTER_ERR_MISMATCH);
      EXPECT_THAT(muster_last_error(),
                  AllOf(HasSubstr("Rank 0: unit \"unit\""), HasSubstr("reduced in f32"),
                        HasSubstr("Rank 2: unit \"unit\""), HasSubstr("reduced in bf16")));
    }
    muster_units_options set = MUSTER_UNITS_OPTIONS_INIT;
    if (member.rank == 1) set.prefetch = 2;
    {
      OneUnit unit(member, MUSTER_UNIT_OPTIONS_INIT, set);
      EXPECT_EQ(unit.step(), MUSTER_ERR_MISMATCH);
      EXPECT_THAT(muster_last_error(), AllOf(HasSubstr("prefetch 1"), HasSubstr("prefetch 2")));
    }
    {
      OneUnit unit(member, MUSTER_UNIT_OPTIONS_INIT, MUSTER_UNITS_OPTIONS_INIT, member.rank == 0 ? 10 : 11);
      EXPECT_EQ(unit.step(), MUSTER_ERR_MISMATCH);
      EXPECT_THAT(muster_last_error(), AllOf(HasSubstr("shape [10]"), HasSubstr("shape [11]")));
    }
    options = MUSTER_UNIT_OPTIONS_INIT;
    if (member.rank == 1) options.tensor = "tp";
    {
      OneUnit unit(member, options);
      EXPECT_EQ(unit.step(), MUSTER_ERR_MISMATCH);
      EXPECT_THAT(muster_last_error(), AllOf(HasSubstr("tensor \"\" (1)"), HasSubstr("tensor \"tp\" (1)")));
    }
    OneUnit unit(member, MUSTER_UNIT_OPTIONS_INIT, MUSTER_UNITS_OPTIONS_INIT, 10,
                 member.rank == 2 ? MUSTER_CUT_OUTERMOST_FIRST : MUSTER_CUT_INNERMOST_FIRST);
    EXPECT_EQ(unit.step(), MUSTER_ERR_MISMATCH);
    EXPECT_THAT(muster_last_error(), AllOf(HasSubstr("innermost first"), HasSubstr("outermost first")));
    meet_and_leave(member);
  });
}

// Goal:   a refusal at one rank alone is an error at all ranks.
TEST_F(UnitRules, SayWhatOneRankWasRefused) {
  with_ranks(3, [&](Member& member) {
    muster_lane lane = 0;
    if (member.rank == 1) ok(muster_lane_create(member.session, MUSTER_LANE_GATHER, "units", &lane));
    OneUnit unit(member, MUSTER_UNIT_OPTIONS_INIT);
    EXPECT_EQ(unit.step(), MUSTER_ERR_DUPLICATE);
    EXPECT_THAT(muster_last_error(), HasSubstr("rank 1: "));
    // It works once the cause is gone.
    if (member.rank == 1) ok(muster_lane_destroy(member.session, lane));
    ok(unit.step());
    ok(unit.step_end());
    muster_units_options set = MUSTER_UNITS_OPTIONS_INIT;
    set.name = "small";
    set.budget_bytes = 64;
    OneUnit small(member, MUSTER_UNIT_OPTIONS_INIT, set, 100);
    EXPECT_EQ(small.step(), MUSTER_ERR_NO_RESOURCE);
    EXPECT_STREQ(muster_last_error(),
                 "the budget is 64 bytes, but 832 must be whole at once (unit): allow 832 or more")
        << "what all are refused is no rank's own";
    EXPECT_EQ(small.info().least_bytes, 832U);
    meet_and_leave(member);
  });
}

// Goal:   a rank that is refused in a step does not leave the others waiting, and all can begin anew.
TEST_F(UnitRules, DoNotWaitForARankThatWasRefused) {
  with_ranks(2, [&](Member& member) {
    OneUnit unit(member, MUSTER_UNIT_OPTIONS_INIT);
    ok(unit.step());
    await_all(member);
    if (member.rank == 0) {
      EXPECT_EQ(unit.backward(), MUSTER_ERR_STATE);
    } else {
      muster_point ready = MUSTER_POINT_NONE;
      ok(muster_unit_forward_begin(unit.units, 0, &ready));
      EXPECT_EQ(muster_point_wait(member.session, ready, -1), MUSTER_ERR_ABORTED);
      EXPECT_THAT(muster_last_error(),
                  HasSubstr("rank 0 aborted group world: muster_unit_backward_begin of unit \"unit\""));
      EXPECT_THAT(muster_last_error(), HasSubstr("a backward needs a forward"));
    }
    ok(muster_step_abandon(unit.units));
    for (int step = 0; step < 3; ++step) {
      ok(unit.step());
      ok(unit.forward());
      ok(unit.forward_end());
      ok(unit.backward());
      ok(unit.backward_end());
      ok(unit.step_end());
      for (const muster_point point : unit.done) ok(muster_point_wait(member.session, point, -1));
    }
  });
}

// Goal:   case F17: a parameter that no rank used has a gradient of zeros, and the step ends.
TEST_F(UnitRules, EndWithAParameterThatNobodyUsed) {
  with_ranks(2, [&](Member& member) {
    OneUnit unit(member, MUSTER_UNIT_OPTIONS_INIT);
    ok(unit.step());
    muster_tensor whole{};
    muster_tensor gradient[2] = {};
    ok(muster_unit_tensor(unit.units, 0, 0, MUSTER_UNIT_WHOLE_GRADIENT, &whole));
    muster_buffer_info info = MUSTER_BUFFER_INFO_INIT;
    ok(muster_buffer_query(member.session, whole.buffer, &info));
    std::fill_n(reinterpret_cast<float*>(static_cast<std::byte*>(info.address) + whole.offset_bytes), 20,
                static_cast<float>(member.rank + 1));
    for (std::uint32_t p = 0; p < 2; ++p)
      ok(muster_unit_tensor(unit.units, 0, p, MUSTER_UNIT_GRADIENT_SHARD, &gradient[p]));
    ok(muster_buffer_query(member.session, gradient[0].buffer, &info));
    auto* shard = static_cast<float*>(info.address);
    std::fill_n(shard, 10, 7.0F);
    ok(unit.forward());
    ok(unit.forward_end());
    ok(unit.backward());
    ok(muster_unit_unused(unit.units, 0, 1));
    ok(unit.backward_end());
    ok(unit.step_end());
    for (const muster_point point : unit.done) ok(muster_point_wait(member.session, point, -1));
    for (int i = 0; i < 10; ++i) EXPECT_EQ(shard[i], i < 5 ? 1.5F : 0.0F) << i;
    meet_and_leave(member);
  });
}

// Goal:   case F19: a part that never runs is a warning, and the next step works.
TEST_F(UnitRules, WarnOfAPartThatNeverRan) {
  with_ranks(2, [&](Member& member) {
    muster_unit_options options = MUSTER_UNIT_OPTIONS_INIT;
    options.parts = 2;
    OneUnit unit(member, options);
    for (int step = 0; step < 2; ++step) {
      ok(unit.step());
      ok(unit.forward());
      ok(unit.forward_end(0));
      ok(unit.step_end());
      EXPECT_THAT(unit.info().warning, HasSubstr("a part of unit \"unit\" did not run"));
      EXPECT_EQ(unit.info().whole_bytes, 0U);
    }
    EXPECT_EQ(unit.forward_end(2), MUSTER_ERR_BAD_ARGUMENT);
    meet_and_leave(member);
  });
}

// Goal:   an evaluation gathers once what it keeps whole.
TEST_F(UnitRules, StayWholeWhileShardsAreUnchanged) {
  with_ranks(2, [&](Member& member) {
    muster_unit_options options = MUSTER_UNIT_OPTIONS_INIT;
    options.after_forward = MUSTER_RESHARD_NEVER;
    OneUnit unit(member, options);
    for (int step = 0; step < 4; ++step) {
      ok(muster_step_begin(unit.units, MUSTER_POINT_NONE, step == 0 ? 0 : MUSTER_STEP_UNCHANGED));
      muster_point ready = MUSTER_POINT_NONE;
      ok(muster_unit_unshard(unit.units, 0, &ready));
      ok(muster_point_wait(member.session, ready, -1));
      if (step == 1) ok(muster_unit_reshard(unit.units, 0, MUSTER_POINT_NONE));
      EXPECT_EQ(unit.info().gathers, step < 2 ? 1U : 2U) << step;
      ok(unit.step_end());
    }
    meet_and_leave(member);
  });
}

// Goal:   the death of a rank is told by the points of the units, and the set can be given back.
TEST_F(UnitRules, HearOfALostRank) {
  with_ranks(3, [&](Member& member) {
    auto unit = std::make_unique<OneUnit>(member, muster_unit_options MUSTER_UNIT_OPTIONS_INIT);
    ok(unit->step());
    if (member.rank == 2) {
      await_all(member);
      unit.reset();
      return;
    }
    muster_point ready = MUSTER_POINT_NONE;
    ok(muster_unit_forward_begin(unit->units, 0, &ready));
    await_all(member);
    EXPECT_EQ(muster_point_wait(member.session, ready, -1), MUSTER_ERR_PEER_LOST);
    EXPECT_THAT(muster_last_error(), HasSubstr("rank 2"));
    EXPECT_EQ(muster_step_abandon(unit->units), MUSTER_ERR_PEER_LOST);
  });
}

// Goal:   ranks that gather, or reduce, another of two equal units than the others do, hear of it.
TEST_F(UnitRules, SayThatRanksUseOtherUnits) {
  const std::vector<UnitSpec> specs{{"a", {{{8}}}}, {"b", {{{8}}}}};
  with_ranks(2, [&](Member& member) {
    const auto other = static_cast<std::size_t>(member.rank);
    Model model(member, specs, {});
    model.initialise();
    model.step(0);
    model.wait();
    ok(muster_step_begin(model.units, MUSTER_POINT_NONE, 0));
    muster_point ready = MUSTER_POINT_NONE;
    ok(muster_unit_forward_begin(model.units, static_cast<muster_unit>(other), &ready));
    EXPECT_EQ(muster_point_wait(member.session, ready, -1), MUSTER_ERR_MISMATCH);
    EXPECT_THAT(muster_last_error(), AnyOf(HasSubstr("tag: 1 at rank 0 (a) and 2 at rank 1 (b)"),
                                           HasSubstr("tag: 1 on node "), HasSubstr("tag: 2 on node ")));
    ok(muster_step_abandon(model.units));
    model.step(0);
    model.wait();
    meet_and_leave(member);
  });
}

// Goal:   case F16: a parameter without a gradient at one rank alone.
TEST_F(UnitRules, SayThatOneRankHasNoGradientOfAParameter) {
  with_ranks(2, [&](Member& member) {
    OneUnit unit(member, MUSTER_UNIT_OPTIONS_INIT);
    ok(unit.step());
    ok(unit.forward());
    ok(unit.forward_end());
    ok(unit.backward());
    if (member.rank == 1) ok(muster_unit_unused(unit.units, 0, 1));
    ok(unit.backward_end());
    ok(unit.step_end());
    EXPECT_EQ(muster_point_wait(member.session, unit.done[0], -1), MUSTER_ERR_MISMATCH);
    EXPECT_THAT(muster_last_error(), AllOf(HasSubstr("rank 0"), HasSubstr("rank 1")));
    ok(muster_step_abandon(unit.units));
    ok(unit.step());
    ok(unit.step_end());
  });
}

// Goal:   case F11: 257 gradients of 1 are 257 in f32, where bf16 would stick at 256.
TEST_F(UnitRules, KeepGradientsInTheDtypeOfTheReduction) {
  with_ranks(2, [&](Member& member) {
    muster_unit_options options = MUSTER_UNIT_OPTIONS_INIT;
    options.whole_dtype = MUSTER_BF16;
    options.reduce_dtype = MUSTER_F32;
    muster_units_options set = MUSTER_UNITS_OPTIONS_INIT;
    set.flags = MUSTER_UNITS_KEEP_GRADIENTS;
    OneUnit unit(member, options, set);
    ok(unit.step());
    for (int microbatch = 0; microbatch < 257; ++microbatch) {
      ok(unit.forward());
      ok(unit.forward_end());
      unit.await_backward();
      for (const std::uint32_t parameter : {0U, 1U})
        for (float* gradient : unit.elements(MUSTER_UNIT_WHOLE_GRADIENT, parameter))
          *gradient = microbatch == 0 ? 1 : *gradient + 1;
      ok(unit.backward_end(microbatch < 256 ? MUSTER_BACKWARD_KEEP_GRADIENTS : 0));
    }
    ok(unit.step_end());
    for (const muster_point point : unit.done) ok(muster_point_wait(member.session, point, -1));
    for (const float* gradient : unit.elements(MUSTER_UNIT_GRADIENT_SHARD)) EXPECT_EQ(*gradient, 257);
    meet_and_leave(member);
  });
}

// Goal:   case F28: a module of two units, dense over all four ranks and experts over two of them. Both are
//         divided by all four.
TEST_F(UnitRules, LieOnSeveralMeshesInOneModule) {
  mesh = "dp_shard=4,ep=2";
  with_ranks(4, [&](Member& member) {
    muster_units* units = nullptr;
    ok(muster_units_create(member.session, nullptr, &units));
    for (const char* shard : {"dp_shard_cp", "efsdp"}) {
      muster_layout_options said = MUSTER_LAYOUT_OPTIONS_INIT;
      said.dims = 1;
      said.shape[0] = 6;
      said.axis_count = 1;
      said.axes[0].name = shard;
      said.axes[0].placement = MUSTER_SHARD;
      muster_layout* layout = nullptr;
      ok(muster_layout_create(member.session, &said, &layout));
      // Each rank along ep has experts of its own.
      const bool experts = std::string_view(shard) == "efsdp";
      const muster_parameter parameter{shard, layout, MUSTER_F32, experts ? MUSTER_PARAMETER_LOCAL : 0U};
      muster_unit_options options = MUSTER_UNIT_OPTIONS_INIT;
      options.name = shard;
      options.module = "moe";
      options.shard = shard;
      options.divisor = 4;
      options.parameters = &parameter;
      options.parameter_count = 1;
      muster_unit unit = 0;
      ok(muster_unit_create(units, &options, &unit));
      ok(muster_layout_destroy(layout));
    }
    ok(muster_step_begin(units, MUSTER_POINT_NONE, 0));
    muster_point ready[2] = {};
    for (const muster_unit unit : {0U, 1U}) ok(muster_unit_forward_begin(units, unit, ready));
    for (const muster_unit unit : {0U, 1U}) ok(muster_unit_forward_end(units, unit, 0, MUSTER_POINT_NONE));
    for (const muster_unit unit : {1U, 0U}) {
      ok(muster_unit_backward_begin(units, unit, ready));
      for (const muster_point point : ready) ok(muster_point_wait(member.session, point, -1));
      for (float* gradient : view_of(member, units, unit, 0, MUSTER_UNIT_WHOLE_GRADIENT))
        *gradient = static_cast<float>(member.rank + 1);
    }
    for (const muster_unit unit : {1U, 0U})
      ok(muster_unit_backward_end(units, unit, 0, MUSTER_POINT_NONE, 0, nullptr));
    ok(muster_step_end(units, MUSTER_POINT_NONE, ready));
    for (const muster_point point : ready) ok(muster_point_wait(member.session, point, -1));
    muster_units_info info = MUSTER_UNITS_INFO_INIT;
    ok(muster_units_query(units, &info));
    EXPECT_EQ(info.gathers, 4U) << "2 forward, 2 backward";
    EXPECT_EQ(info.reductions, 2U);
    for (const float* gradient : view_of(member, units, 0, 0, MUSTER_UNIT_GRADIENT_SHARD))
      EXPECT_EQ(*gradient, 10.0F / 4);
    // efsdp has ranks 0 and 2, and 1 and 3.
    for (const float* gradient : view_of(member, units, 1, 0, MUSTER_UNIT_GRADIENT_SHARD))
      EXPECT_EQ(*gradient, (member.rank % 2 == 0 ? 4.0F : 6.0F) / 4);
    ok(muster_units_destroy(units));
    meet_and_leave(member);
  });
}

}  // namespace
}  // namespace muster::test
