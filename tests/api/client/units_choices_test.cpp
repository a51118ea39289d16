// Choices of a program that changes its mind: which units to gather ahead, and which stay whole after
// forward.
#include "tests/api/client/units_model.hpp"

#include <cstdint>
#include <functional>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <muster/units.h>

namespace muster::test {
namespace {

using ::testing::HasSubstr;

constexpr muster_unit kUnits = 4;
constexpr muster_unit kNone = 77;

class UnitChoices : public RunningRanks {
 protected:
  UnitChoices() { mesh = "dp_shard=2"; }

  // Trains four units that are gathered anew for backward, without a budget.
  void with_model(const std::function<void(Member&, Model&)>& use) {
    std::vector<UnitSpec> specs;
    for (const char* name : {"a", "b", "c", "d"})
      specs.push_back({name, {{{6, 4}}}, MUSTER_RESHARD_ALWAYS, 0});
    with_ranks(2, [&](Member& member) {
      Model model(member, specs, Setting());
      model.initialise();
      use(member, model);
      meet_and_leave(member);
    });
  }
  // The figures that one step adds to those of the set; its parameters stay as they are.
  static muster_units_info figures_of_step(Model& model) {
    const muster_units_info before = model.info();
    model.step(0);
    model.wait();
    for (std::size_t u = 0; u < kUnits; ++u)
      model.each(u, 0, MUSTER_UNIT_WHOLE, [&](std::int64_t at, std::int64_t index) {
        ASSERT_EQ(model.copied(u, 0)[at], Model::initial(u, 0, index)) << u;
      });
    muster_units_info after = model.info();
    after.gathers -= before.gathers;
    after.prefetches -= before.prefetches;
    after.demands -= before.demands;
    return after;
  }
};

TEST_F(UnitChoices, GatherAheadWhatTheProgramNames) {
  with_model([](Member&, Model& model) {
    model.step(0);
    EXPECT_GT(figures_of_step(model).prefetches, 0U) << "the order of the step before is the prediction";
    for (muster_unit u = 0; u < kUnits; ++u)
      for (const std::int32_t backward : {0, 1})
        ok(muster_unit_prefetch(model.units, u, backward, nullptr, 0));
    const muster_units_info none = figures_of_step(model);
    EXPECT_EQ(none.prefetches, 0U) << "an empty list replaces the prediction";
    EXPECT_EQ(none.demands, 2 * kUnits);
    for (muster_unit u = 0; u + 1 < kUnits; ++u) {
      const muster_unit next = u + 1;
      ok(muster_unit_prefetch(model.units, u, 0, &next, 1));
      ok(muster_unit_prefetch(model.units, next, 1, &u, 1));
    }
    const muster_units_info all = figures_of_step(model);
    EXPECT_EQ(all.prefetches, 2 * (kUnits - 1));
    EXPECT_EQ(all.demands, 2U) << "the first unit of forward, and that of backward";
    EXPECT_EQ(all.gathers, 2 * kUnits);
  });
}

TEST_F(UnitChoices, StayWholeAfterForwardFromThenOn) {
  with_model([](Member&, Model& model) {
    model.step(0);
    EXPECT_EQ(figures_of_step(model).gathers, 2 * kUnits);
    ok(muster_unit_set_reshard(model.units, kUnits - 1, MUSTER_RESHARD_NEVER));
    EXPECT_EQ(figures_of_step(model).gathers, 2 * kUnits - 1)
        << "the last unit is whole when backward begins";
    ok(muster_unit_set_reshard(model.units, kUnits - 1, MUSTER_RESHARD_ALWAYS));
    EXPECT_EQ(figures_of_step(model).gathers, 2 * kUnits);
  });
}

TEST_F(UnitChoices, AreRefusedWhereTheyCannotBe) {
  with_model([](Member&, Model& model) {
    const muster_unit first = 0;
    EXPECT_EQ(muster_unit_prefetch(model.units, 0, 0, &first, 1), MUSTER_ERR_STATE);
    EXPECT_EQ(muster_unit_set_reshard(model.units, 0, MUSTER_RESHARD_NEVER), MUSTER_ERR_STATE);
    model.step(0);
    EXPECT_EQ(muster_unit_prefetch(model.units, kNone, 0, &first, 1), MUSTER_ERR_BAD_ARGUMENT);
    EXPECT_EQ(muster_unit_prefetch(model.units, 0, 0, &kNone, 1), MUSTER_ERR_BAD_ARGUMENT);
    EXPECT_THAT(muster_last_error(), HasSubstr("77"));
    EXPECT_EQ(muster_unit_set_reshard(model.units, kNone, MUSTER_RESHARD_NEVER), MUSTER_ERR_BAD_ARGUMENT);
    EXPECT_EQ(muster_unit_set_reshard(model.units, 0, MUSTER_RESHARD_DEFAULT), MUSTER_ERR_BAD_ARGUMENT);
    EXPECT_EQ(figures_of_step(model).gathers, 2 * kUnits) << "a refused call changes nothing";
  });
}

}  // namespace
}  // namespace muster::test
