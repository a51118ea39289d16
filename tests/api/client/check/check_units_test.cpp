// Check mode reports misuse of units. Each test plants one wrong line in a correct program.
#include "tests/api/client/check/checked_ranks.hpp"
#include "tests/api/client/units_model.hpp"

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace muster::test {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::HasSubstr;

class CheckUnits : public CheckedRanks {
 protected:
  // A unit "unit" of two vectors over two shards, in a step.
  void in_a_step(const std::function<void(Member&, OneUnit&)>& body, std::int64_t elements = 10) {
    mesh = "dp_shard=2";
    with_ranks(2, [&](Member& member) {
      OneUnit unit(member, MUSTER_UNIT_OPTIONS_INIT, MUSTER_UNITS_OPTIONS_INIT, elements);
      ok(unit.step());
      body(member, unit);
      ok(unit.step_end());
      meet_after_aborts(member);
    });
  }
  // A barrier, whatever a step that broke has aborted.
  void meet_after_aborts(Member& member) {
    for (int i = 0; i < 32 && member.run(member.barrier()) == MUSTER_ERR_ABORTED; ++i) {
    }
    await_all(member);
  }
  static muster_tensor view(const OneUnit& unit, std::int32_t which, std::uint32_t parameter = 0) {
    muster_tensor tensor{};
    ok(muster_unit_tensor(unit.units, 0, parameter, which, &tensor));
    return tensor;
  }
  // A kernel that reads the whole parameter.
  static muster_status_t read(Member& member, const OneUnit& unit, const Vector& into,
                              std::initializer_list<muster_point> waits, muster_point* point) {
    const muster_kernel copy = muster_copy(view(unit, MUSTER_UNIT_WHOLE), floats(into, 10));
    const muster_submit submit = after(waits, MUSTER_LANE_COMPUTE);
    return muster_launch(member.session, &copy, &submit, point);
  }
};

TEST_F(CheckUnits, NamesAKernelThatReadsAUnitBeforeItIsReady) {
  in_a_step([](Member& member, OneUnit& unit) {
    const std::string rank = "rank " + std::to_string(member.rank);
    const Vector into = vector_of(member, 10);
    muster_point point = MUSTER_POINT_NONE;
    EXPECT_EQ(read(member, unit, into, {}, &point), MUSTER_ERR_STATE) << "before forward_begin";
    EXPECT_THAT(muster_last_error(),
                AllOf(HasSubstr(rank + ": a start of kernel copy on lane 0 reads bytes [0, 40)"),
                      HasSubstr("unit \"unit\" is not whole")));
    muster_point ready = MUSTER_POINT_NONE;
    ok(muster_unit_forward_begin(unit.units, 0, &ready));
    EXPECT_EQ(read(member, unit, into, {}, &point), MUSTER_ERR_STATE) << "without `ready`";
    EXPECT_THAT(muster_last_error(),
                AllOf(HasSubstr(rank + ": a start of kernel copy on lane 0 reads bytes [0, 40) of buffer"),
                      HasSubstr("which all_gather \"unit\" (start 1 of lane 7 \"units\") writes")));
    ok(read(member, unit, into, {ready}, &point));
    ok(muster_unit_forward_end(unit.units, 0, 0, point));
    ok(muster_point_wait(member.session, point, -1));
    EXPECT_EQ(into.data[9], 0.0f);
  });
}

TEST_F(CheckUnits, NamesAReadOfParametersThatWereFreed) {
  in_a_step([](Member& member, OneUnit& unit) {
    const Vector into = vector_of(member, 10);
    muster_point ready = MUSTER_POINT_NONE;
    muster_point point = MUSTER_POINT_NONE;
    ok(muster_unit_forward_begin(unit.units, 0, &ready));
    ok(read(member, unit, into, {ready}, &point));
    ok(muster_unit_forward_end(unit.units, 0, 0, point));
    EXPECT_EQ(read(member, unit, into, {ready}, &point), MUSTER_ERR_STATE);
    EXPECT_THAT(muster_last_error(),
                AllOf(HasSubstr("reads bytes [0, 40) of buffer"), HasSubstr("unit \"unit\" is not whole")));
  });
}

TEST_F(CheckUnits, NamesTheProcesssOwnReadOfParametersThatWereFreed) {
  in_a_step(
      [](Member& member, OneUnit& unit) {
        muster_point ready = MUSTER_POINT_NONE;
        ok(muster_unit_forward_begin(unit.units, 0, &ready));
        ok(muster_point_wait(member.session, ready, -1));
        const float* const first = unit.elements(MUSTER_UNIT_WHOLE).front();
        EXPECT_EQ(*first, 0.0f);
        ok(unit.forward_end());
        if (member.rank == 1)  // one thread at a time
          EXPECT_EXIT(
              std::exit(*first == 0.0f ? 0 : 1), ended_by_a_fault,
              "rank 1: buffer 0x[0-9a-f]+ of [0-9]+ bytes: a read of its byte 0: unit .unit. is not whole");
      },
      4096);
}

// Goal:   a unit that is not whole has no numbers for a reader that check mode cannot see. Two units have one
//         page, which stays open to the process. abandon() waits for all that the set has started.
TEST_F(CheckUnits, HaveNoNumbersWhereTheyAreNotWhole) {
  mesh = "dp_shard=2";
  with_ranks(2, [&](Member& member) {
    const std::vector<UnitSpec> specs{{"a", {{{6}}}, MUSTER_RESHARD_ALWAYS, 0},
                                      {"b", {{{6}}}, MUSTER_RESHARD_ALWAYS, 0}};
    Model model(member, specs, {});
    model.initialise();
    model.step(0.125);
    model.wait();
    ok(muster_step_abandon(model.units));
    const float* const freed = model.memory(model.view(0, 0, MUSTER_UNIT_WHOLE));
    for (int i = 0; i < 6; ++i) EXPECT_TRUE(std::isnan(freed[i])) << i;
    model.step(0.125);
    model.wait();
    EXPECT_FALSE(std::isnan(model.copied(0, 0)[5])) << "whole parameters have their numbers again";
    meet_and_leave(member);
  });
}

TEST_F(CheckUnits, NameAKernelThatOutlivesTheUseOfItsUnit) {
  in_a_step([](Member& member, OneUnit& unit) {
    const Vector into = vector_of(member, 10);
    muster_point ready = MUSTER_POINT_NONE;
    muster_point point = MUSTER_POINT_NONE;
    ok(muster_unit_forward_begin(unit.units, 0, &ready));
    ok(read(member, unit, into, {ready}, &point));
    EXPECT_EQ(unit.forward_end(), MUSTER_ERR_STATE);
    EXPECT_THAT(
        muster_last_error(),
        AllOf(
            HasSubstr("unit \"unit\" is given up while kernel copy (start 1 of lane 0) reads bytes [0, 40)"),
            HasSubstr("(`after`)")));
    ok(muster_step_abandon(unit.units));
    ok(unit.step());
  });
}

TEST_F(CheckUnits, NamesAGradientThatNobodyWroteOrCalledUnused) {
  in_a_step([](Member& member, OneUnit& unit) {
    ok(unit.forward());
    ok(unit.forward_end());
    unit.await_backward();
    for (float* each : unit.elements(MUSTER_UNIT_WHOLE_GRADIENT, 0)) *each = 0.0f;
    ok(unit.backward_end());
    EXPECT_EQ(unit.step_end(), MUSTER_ERR_STATE);
    EXPECT_THAT(muster_last_error(), AllOf(HasSubstr("rank " + std::to_string(member.rank) +
                                                     ": unit \"unit\": nobody has written the"),
                                           HasSubstr("gradient of parameter \"v\"")));
    ok(unit.step());
    ok(unit.forward());
    ok(unit.forward_end());
    unit.await_backward();
    for (float* each : unit.elements(MUSTER_UNIT_WHOLE_GRADIENT, 0)) *each = 0.0f;
    ok(muster_unit_unused(unit.units, 0, 1));
    ok(unit.backward_end());
  });
}

// A model of two units on two shards; `planted`: whether the optimiser comes too early.
TEST_F(CheckUnits, NamesAnOptimiserThatComesBeforeTheGradients) {
  mesh = "dp_shard=2";
  with_ranks(2, [&](Member& member) {
    Model model(member, five_units(), {});
    model.initialise();
    model.step(0.125);
    ok(muster_step_begin(model.units, model.latest(), 0));
    for (std::size_t u = 0; u < 5; ++u) model.forward(u);
    for (std::size_t u = 5; u-- > 0;) model.backward(u, 0, 0);
    muster_point done[2];
    ok(muster_step_end(model.units, model.latest(), done));
    const muster_kernel update = muster_axpby(-1.0, model.view(2, 0, MUSTER_UNIT_GRADIENT_SHARD), 1,
                                              model.view(2, 0, MUSTER_UNIT_SHARD));
    const muster_submit submit = after({}, MUSTER_LANE_COMPUTE);
    EXPECT_EQ(muster_launch(member.session, &update, &submit, nullptr), MUSTER_ERR_STATE);
    EXPECT_THAT(
        muster_last_error(),
        AllOf(HasSubstr("rank " + std::to_string(member.rank) +
                        ": a start of kernel axpby on lane 0 reads bytes"),
              HasSubstr("(gradient shards of unit \"block.1\"), which reduce_scatter \"block.1\" (start "),
              HasSubstr("writes, and does not come after that")));
    model.update(0.125, done);
    model.wait();
    meet_and_leave(member);
  });
}

// The step begins without the point of the optimiser: what is gathered is still written.
TEST_F(CheckUnits, NamesAGatherThatComesBeforeTheOptimiser) {
  mesh = "dp_shard=2";
  with_ranks(2, [&](Member& member) {
    Model model(member, five_units(), {});
    model.initialise();
    model.step(0.125);
    ok(muster_step_begin(model.units, MUSTER_POINT_NONE, 0));
    muster_point ready = MUSTER_POINT_NONE;
    EXPECT_EQ(muster_unit_forward_begin(model.units, 0, &ready), MUSTER_ERR_STATE);
    EXPECT_THAT(muster_last_error(),
                AllOf(HasSubstr("a start of all_gather \"root\""),
                      HasSubstr("(shards of unit \"root\"), which kernel axpby (start")));
    meet_after_aborts(member);
  });
}

TEST_F(CheckUnits, NamesReplicasThatBeginWithOtherParameters) {
  mesh = "dp_replicate=2,dp_shard=2";
  with_ranks(4, [&](Member& member) {
    Model model(member, five_units(), {});
    model.initialise();
    if (member.rank >= 2) *model.memory(model.view(3, 1, MUSTER_UNIT_SHARD)) += 1.0f;  // another seed
    EXPECT_EQ(muster_step_begin(model.units, MUSTER_POINT_NONE, 0), MUSTER_ERR_CORRUPT);
    EXPECT_THAT(
        muster_last_error(),
        AllOf(HasSubstr("rank " + std::to_string(member.rank) + ": muster_step_begin: replicas of parameter"),
              HasSubstr("\"block.2.p1\" of unit \"block.2\" along \"dp_replicate\" differ"),
              HasSubstr("at rank")));
    model.initialise();
    model.step(0.125);
    model.wait();
    meet_and_leave(member);
  });
}

// Goal:   where `replicate` is forgotten the step is refused; if that is called local, a note tells of the
//         drift.
TEST_F(CheckUnits, NamesWhatForgetsItsReplicas) {
  mesh = "dp_replicate=2,dp_shard=1";
  const auto train = [&](Member& member, std::uint32_t flags) {
    muster_units* units = nullptr;
    ok(muster_units_create(member.session, nullptr, &units));
    muster_layout_options said = MUSTER_LAYOUT_OPTIONS_INIT;
    said.dims = 1;
    said.shape[0] = 8;
    said.axis_count = 1;
    said.axes[0].name = "dp_shard";
    said.axes[0].placement = MUSTER_SHARD;
    muster_layout* layout = nullptr;
    ok(muster_layout_create(member.session, &said, &layout));
    const muster_parameter parameter{"w", layout, MUSTER_F32, flags};
    muster_unit_options options = MUSTER_UNIT_OPTIONS_INIT;
    options.name = "unit";
    options.shard = "dp_shard";
    options.parameters = &parameter;
    options.parameter_count = 1;
    muster_unit unit = 0;
    ok(muster_unit_create(units, &options, &unit));
    *view_of(member, units, 0, 0, MUSTER_UNIT_SHARD).front() = static_cast<float>(member.rank);
    const muster_status_t begun = muster_step_begin(units, MUSTER_POINT_NONE, 0);
    if (begun == MUSTER_OK) {
      muster_point done[2];
      ok(muster_step_end(units, MUSTER_POINT_NONE, done));
    }
    const std::string text = muster_last_error();
    ok(muster_units_destroy(units));
    ok(muster_layout_destroy(layout));
    return std::pair(begun, text);
  };
  ::testing::internal::CaptureStderr();
  with_ranks(2, [&](Member& member) {
    const auto [forgotten, text] = train(member, 0);
    EXPECT_EQ(forgotten, MUSTER_ERR_BAD_ARGUMENT);
    EXPECT_THAT(text, AllOf(HasSubstr("unit \"unit\""), HasSubstr("dp_replicate"), HasSubstr("\"w\"")));
    EXPECT_EQ(train(member, MUSTER_PARAMETER_LOCAL).first, MUSTER_OK);
    meet_and_leave(member);
  });
  EXPECT_THAT(
      ::testing::internal::GetCapturedStderr(),
      HasSubstr("muster: check mode notes: rank 1: muster_step_begin: replicas of parameter \"w\" of unit "
                "\"unit\" along \"dp_replicate\" differ"));
}

}  // namespace
}  // namespace muster::test
