// Cases of sharded units with the numbers that are known for them.
#include "tests/api/client/units_model.hpp"
#include "tests/support/folder.hpp"

#include <cstdint>
#include <fstream>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <muster/checkpoint.h>

namespace muster::test {
namespace {

using ::testing::HasSubstr;

class UnitCases : public RunningRanks {
 protected:
  void expect_divided() {
    with_ranks(8, [&](Member& member) {
      muster_unit_options options = MUSTER_UNIT_OPTIONS_INIT;
      options.replicate = "dp_replicate";
      options.reduce_dtype = MUSTER_F16;
      EXPECT_EQ(OneUnit(member, options, MUSTER_UNITS_OPTIONS_INIT, 16).reduced(30000), 30000);
      options.reduce_dtype = MUSTER_F32;
      for (const auto& [divisor, mean] : {std::pair{0.0, 4.5F}, {8.0, 4.5F}, {4.0, 9.0F}}) {
        options.divisor = divisor;
        OneUnit unit(member, options, MUSTER_UNITS_OPTIONS_INIT, 16);
        EXPECT_EQ(unit.reduced(member.rank + 1), mean) << "by " << divisor;
      }
      meet_and_leave(member);
    });
  }
};

// Goal:   case F18: weights that two modules share lie in one unit of two parts: one gather, and the sum of
//         both gradients. UnitRules has the error for a parameter in two units.
TEST_F(UnitCases, ShareAGradientWhereModulesShareAParameter) {
  with_ranks(2, [&](Member& member) {
    muster_unit_options options = MUSTER_UNIT_OPTIONS_INIT;
    options.parts = 2;
    options.after_forward = MUSTER_RESHARD_NEVER;
    OneUnit unit(member, options);
    ok(unit.step());
    for (const std::uint32_t part : {0U, 1U}) {
      ok(unit.forward());
      ok(unit.forward_end(part));
    }
    for (const std::uint32_t part : {1U, 0U}) {
      unit.await_backward();
      for (std::uint32_t p = 0; p < 2; ++p)
        for (float* element : unit.elements(MUSTER_UNIT_WHOLE_GRADIENT, p))
          *element = (part == 1 ? 0 : *element) + static_cast<float>((part + 1) * (member.rank + 1));
      ok(unit.backward_end(0, part));
    }
    EXPECT_EQ(unit.last_gradient(), (1 + 2) * 1.5F);
    EXPECT_EQ(unit.info().gathers, 1U);
    EXPECT_EQ(unit.info().reductions, 1U);
    meet_and_leave(member);
  });
}

// Goal:   case F19: a loss that runs and goes back chunk by chunk leaves the gradients of one that does not.
TEST_F(UnitCases, HaveTheSameGradientsInChunks) {
  with_ranks(2, [&](Member& member) {
    muster_unit_options options = MUSTER_UNIT_OPTIONS_INIT;
    options.parts = 2;
    OneUnit unit(member, options);
    const auto add = [&](float gradient, bool is_first, std::uint32_t part) {
      unit.await_backward();
      for (std::uint32_t p = 0; p < 2; ++p)
        for (float* element : unit.elements(MUSTER_UNIT_WHOLE_GRADIENT, p))
          *element = (is_first ? 0 : *element) + gradient;
      ok(unit.backward_end(0, part));
    };
    float found[2] = {};
    for (const int chunks : {1, 3}) {
      ok(unit.step());
      ok(unit.forward());
      ok(unit.forward_end(0));
      for (int chunk = 0; chunk < chunks; ++chunk) {
        ok(unit.forward());
        ok(unit.forward_end(1));
        add(static_cast<float>(6 * (member.rank + 1) / chunks), chunk == 0, 1);
      }
      add(0.5F, false, 0);
      found[chunks / 3] = unit.last_gradient();
    }
    EXPECT_EQ(found[0], 9.5F);
    EXPECT_EQ(found[1], 9.5F);
    EXPECT_STREQ(unit.info().warning, "");
    meet_and_leave(member);
  });
}

class FewGroupsOfUnits : public UnitCases {
 protected:
  void SetUp() override {
    node_.options.job_defaults.groups_made_max = 2;
    UnitCases::SetUp();
  }
};

// Goal:   case F21: of 8 ranks 3 are refused, 1 is NEVER, 8 is ALWAYS, and 4 gathers backwards in {0..3} and
//         {4..7}. UnitRules has the error for a parameter that tp cuts.
// Method: each rank has room for two made groups: that one, and one in which the units agree before.
TEST_F(FewGroupsOfUnits, KeepSlicesAmongSoManyRanks) {
  with_ranks(8, [&](Member& member) {
    muster_unit_options options = MUSTER_UNIT_OPTIONS_INIT;
    for (const auto& [kept_by, gathers] : {std::pair{3, 0U}, {1, 1U}, {8, 2U}, {4, 2U}}) {
      options.after_forward = kept_by;
      OneUnit unit(member, options, MUSTER_UNITS_OPTIONS_INIT, 19);
      if (kept_by == 3) {
        EXPECT_EQ(unit.created, MUSTER_ERR_BAD_ARGUMENT);
        EXPECT_THAT(muster_last_error(), HasSubstr("after_forward is 3; possible are"));
        continue;
      }
      const float mean = unit.reduced(member.rank + 1);
      EXPECT_EQ(mean, member.rank < 7 ? 4.5F : 0) << "19 elements by threes, and the last has none";
      EXPECT_EQ(unit.info().gathers, gathers) << kept_by;
      if (kept_by != 4) continue;
      const std::int32_t half = member.rank / 4 * 4;
      const std::int32_t ranks[] = {half, half + 1, half + 2, half + 3};
      muster_group group = 0;
      ok(muster_group_make(member.session, ranks, 4, "units/4", &group));
      ok(muster_group_make(member.session, ranks, 4, "more", &group));
      EXPECT_EQ(muster_group_make(member.session, ranks, 4, "most", &group), MUSTER_ERR_NO_RESOURCE);
      meet_and_leave(member);
    }
  });
}

// Goal:   case F24: replicas alone gather and scatter nothing; gradients of 8 are averaged. One rank's stay.
TEST_F(UnitCases, OfReplicasAloneAreReducedOnly) {
  const Folder folder;
  const std::string trace = folder.path() + "/trace";
  mesh = "dp_replicate=8,dp_shard=1";
  with_ranks(8, [&](Member& member) {
    muster_unit_options options = MUSTER_UNIT_OPTIONS_INIT;
    options.replicate = "dp_replicate";
    OneUnit unit(member, options);
    EXPECT_EQ(unit.reduced(member.rank + 1), 4.5F);
    meet_and_leave(member);
    if (member.rank == 0) ok(muster_trace_begin(member.session));
    meet_and_leave(member);
    EXPECT_EQ(unit.reduced(2 * member.rank), 7);
    meet_and_leave(member);
    if (member.rank == 0) ok(muster_trace_end(member.session, trace.c_str()));
  });
  std::ifstream file(trace);
  const std::string json{std::istreambuf_iterator<char>(file), {}};
  EXPECT_THAT(json, HasSubstr("\"name\":\"all_reduce"));
  EXPECT_EQ(json.find("\"name\":\"all_gather"), std::string::npos);
  EXPECT_EQ(json.find("\"name\":\"reduce_scatter"), std::string::npos);
  mesh = "dp_shard=1";
  with_ranks(1, [&](Member& member) {
    OneUnit unit(member, MUSTER_UNIT_OPTIONS_INIT);
    EXPECT_EQ(unit.reduced(3), 3);
  });
}

// Goal:   case F9: gradients of 30000 in f16 stay 30000 over 8 ranks, whose sum is infinite; in f32 a divisor
//         of 8 is the mean of 8, and one of 4 is the sum over 4.
TEST_F(UnitCases, DivideGradientsByTheirDivisor) {
  mesh = "dp_shard=8";
  expect_divided();
}

// Goal:   case F9, likewise for two replicas of four shards.
TEST_F(UnitCases, DivideGradientsOfReplicasByTheirDivisor) {
  mesh = "dp_replicate=2,dp_shard=4";
  expect_divided();
}

// Goal:   case F7 (ours, as the catalogue has none): parameters of a unit lie end to end in their order,
//         however unevenly they are sharded; no rank has room for rows that it does not have.
TEST_F(UnitCases, LieEndToEndHoweverUnevenTheyAre) {
  with_ranks(3, [&](Member& member) {
    const std::vector<UnitSpec> specs{{"unit", {{{13, 4}}, {{5}}, {{1}}, {{9, 6}}}}};
    Model model(member, specs, {});
    ok(muster_step_begin(model.units, MUSTER_POINT_NONE, 0));
    for (const std::int32_t which :
         {MUSTER_UNIT_SHARD, MUSTER_UNIT_GRADIENT_SHARD, MUSTER_UNIT_WHOLE, MUSTER_UNIT_WHOLE_GRADIENT}) {
      std::uint64_t at = model.view(0, 0, which).offset_bytes;
      for (std::size_t p = 0; p < specs[0].parameters.size(); ++p) {
        const muster_tensor view = model.view(0, p, which);
        EXPECT_EQ(view.offset_bytes, at) << "view " << which << " of parameter " << p;
        std::uint64_t elements = 1;
        for (std::int32_t dim = 0; dim < view.dims; ++dim)
          elements *= static_cast<std::uint64_t>(view.size[dim]);
        at += elements * sizeof(float);
      }
    }
    muster_point done[2];
    ok(muster_step_end(model.units, MUSTER_POINT_NONE, done));
    meet_and_leave(member);
  });
}

// Saves all parameters of a model, changes them, and loads them.
void save_and_load(Member& member, const Model& model, std::uint32_t units, const std::string& path) {
  muster_checkpoints_options options = MUSTER_CHECKPOINTS_OPTIONS_INIT;
  options.folder = path.c_str();
  options.group = member.group;
  muster_checkpoints* folder = nullptr;
  ok(muster_checkpoints_open(member.session, &options, &folder));
  std::vector<std::string> names;
  std::vector<muster_checkpoint_tensor> tensors;
  for (std::uint32_t u = 0; u < units; ++u) names.push_back("w" + std::to_string(u));
  for (std::uint32_t u = 0; u < units; ++u) {
    muster_layout* layout = nullptr;
    ok(muster_unit_layout(model.units, u, 0, &layout));
    tensors.push_back({names[u].c_str(), layout, model.view(u, 0, MUSTER_UNIT_SHARD)});
  }
  muster_checkpoint_save_options save = MUSTER_CHECKPOINT_SAVE_OPTIONS_INIT;
  save.tensors = tensors.data();
  save.tensor_count = tensors.size();
  ok(muster_checkpoint_save(folder, &save));
  const std::vector<float> saved = model.shards();
  for (std::uint32_t u = 0; u < units; ++u)
    model.each(u, 0, MUSTER_UNIT_SHARD,
               [data = model.memory(model.view(u, 0, MUSTER_UNIT_SHARD))](
                   std::int64_t at, std::int64_t /*index*/) { data[at] = -1000; });
  muster_checkpoint_load_options load = MUSTER_CHECKPOINT_LOAD_OPTIONS_INIT;
  load.tensors = tensors.data();
  load.tensor_count = tensors.size();
  ok(muster_checkpoint_load(folder, &load, nullptr));
  EXPECT_EQ(model.shards(), saved);
  for (const muster_checkpoint_tensor& tensor : tensors)
    ok(muster_layout_destroy(const_cast<muster_layout*>(tensor.layout)));
  ok(muster_checkpoints_close(folder));
}

std::uint64_t counter(const Member& member, const char* name) {
  std::uint64_t value = 0;
  ok(muster_counter(member.session, name, &value));
  return value;
}

// Goal:   whole units take of the arena what their shapes say, and stay inside each budget.
// Method: the engine counts the bytes of live buffers, at most at once. The least budget has room for the
//         root and one of four equal units. Shards, gradients and the test's copies are not counted.
TEST_F(UnitCases, TakeFromTheArenaWhatTheirShapesSay) {
  constexpr std::uint64_t kUnit = 64 * sizeof(float);
  constexpr std::uint64_t kLeast = 2 * kUnit;
  constexpr std::uint64_t kAll = 4 * kUnit;  // with two modules ahead
  const std::vector<UnitSpec> specs = {{"root", {{{8, 8}}}, MUSTER_RESHARD_DEFAULT, MUSTER_UNIT_ROOT},
                                       {"a", {{{8, 8}}}},
                                       {"b", {{{8, 8}}}},
                                       {"c", {{{8, 8}}}},
                                       {"d", {{{8, 8}}}}};
  constexpr std::uint64_t kCopies = 5 * (kUnit + 4);
  mesh = "dp_shard=2";
  struct Case {
    std::uint64_t budget;
    std::uint64_t places;
  };
  for (const Case& c : {Case{kLeast, kLeast}, Case{kLeast * 3 / 2, kLeast * 3 / 2}, Case{2 * kLeast, kAll},
                        Case{3 * kLeast, kAll}, Case{0, kAll}})
    with_ranks(2, [&](Member& member) {
      {
        OneUnit first(member, MUSTER_UNIT_OPTIONS_INIT);  // after it the session has what units agree through
        ok(first.step());
        ok(first.step_end());
      }
      const std::uint64_t before = counter(member, "buffer_bytes");
      Setting setting;
      setting.prefetch = 2;
      setting.budget = c.budget;
      Model model(member, specs, setting);
      model.initialise();
      for (int step = 0; step < 3; ++step) model.step(1.0 / 64);
      model.wait();
      const muster_units_info info = model.info();
      EXPECT_EQ(info.least_bytes, kLeast);
      EXPECT_EQ(info.shard_bytes, 2 * 5 * kUnit / 2) << "a half of each unit and of its gradient";
      EXPECT_EQ(info.gradient_bytes, 3 * kUnit) << "the root's, and two units'";
      EXPECT_EQ(counter(member, "buffer_bytes_peak") - before - kCopies - 5 * kUnit - 3 * kUnit, c.places)
          << "with a budget of " << c.budget;
      EXPECT_EQ(info.whole_bytes_peak, c.places) << "with a budget of " << c.budget;
      meet_and_leave(member);
    });
}

// Goal:   a set that was given back leaves nothing in the arena.
TEST_F(UnitCases, GiveTheirMemoryBack) {
  with_ranks(2, [&](Member& member) {
    const auto use = [&] {
      OneUnit unit(member, MUSTER_UNIT_OPTIONS_INIT, MUSTER_UNITS_OPTIONS_INIT, 5000);
      unit.reduced(1);
    };
    use();  // after it the session has what units agree through
    const std::uint64_t before = counter(member, "buffer_bytes");
    use();
    EXPECT_EQ(counter(member, "buffer_bytes"), before);
    meet_and_leave(member);
  });
}

// Goal:   a refused budget is reported with the smallest one. That is enough, however many units are
//         prefetched.
TEST_F(UnitCases, HearTheLeastBudgetWhereOneIsRefused) {
  constexpr std::uint64_t kUnit = 64 * sizeof(float);
  const std::vector<UnitSpec> specs = {{"root", {{{8, 8}}}, MUSTER_RESHARD_DEFAULT, MUSTER_UNIT_ROOT},
                                       {"a", {{{8, 8}}}},
                                       {"b", {{{8, 16}}}},
                                       {"c", {{{8, 8}}}}};
  mesh = "dp_shard=2";
  with_ranks(2, [&](Member& member) {
    Setting setting;
    setting.prefetch = 2;
    setting.budget = 3 * kUnit - 1;
    {
      Model refused(member, specs, setting);
      EXPECT_EQ(muster_step_begin(refused.units, MUSTER_POINT_NONE, 0), MUSTER_ERR_NO_RESOURCE);
      EXPECT_THAT(muster_last_error(), HasSubstr("768 must be whole at once"));
      EXPECT_EQ(refused.info().least_bytes, 3 * kUnit) << "the root and the largest unit";
      setting.budget = refused.info().least_bytes;
    }
    Model model(member, specs, setting);
    model.initialise();
    model.step(0.5);
    model.wait();
    EXPECT_EQ(model.info().least_bytes, setting.budget);
    meet_and_leave(member);
  });
}

// Goal:   case F8: 5 rows over 4 ranks, and 1 over 2, are trained, saved and loaded; some rank has none.
TEST_F(UnitCases, TrainAndSaveWhereARankHasNoRows) {
  for (const std::int64_t rows : {5, 1}) {
    const Folder folder;
    const int world = rows == 5 ? 4 : 2;
    with_ranks(world, [&](Member& member) {
      Model model(member, {{"a", {{{rows, 3}}}}, {"b", {{{rows}}}}}, {});
      model.initialise();
      model.step(0.5);
      model.wait();
      const float scale = 1 - 0.25F * static_cast<float>(world + 1);
      std::int64_t count = 0;
      model.each(0, 0, MUSTER_UNIT_SHARD, [&](std::int64_t at, std::int64_t index) {
        EXPECT_EQ(model.memory(model.view(0, 0, MUSTER_UNIT_SHARD))[at], Model::initial(0, 0, index) * scale);
        ++count;
      });
      EXPECT_EQ(count, 3 * std::min<std::int64_t>(
                               2, std::max<std::int64_t>(0, rows - member.rank * (rows == 5 ? 2 : 1))));
      save_and_load(member, model, 2, folder.path() + "/run");
      meet_and_leave(member);
    });
  }
}

}  // namespace
}  // namespace muster::test
