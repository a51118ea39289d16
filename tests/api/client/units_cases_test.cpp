// Cases of sharded units with the numbers that are known for them, and lanes that are slow.
#include "tests/api/client/units_model.hpp"
#include "tests/support/folder.hpp"

#include <chrono>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <muster/checkpoint.h>

namespace muster::test {
namespace {

using ::testing::HasSubstr;

// A lane on which nothing begins between hold() and release().
class HeldLane {
 public:
  HeldLane(const Member& member, muster_lane lane) : session_(member.session), lane_(lane) {
    ok(muster_timeline_create(session_, &timeline_));
  }
  void hold() {
    muster_collective nothing = MUSTER_COLLECTIVE_INIT;
    nothing.op = MUSTER_BARRIER;
    nothing.group = MUSTER_GROUP_SELF;
    muster_submit submit = MUSTER_SUBMIT_INIT;
    submit.lane = lane_;
    submit.waits[submit.wait_count++] = muster_timeline_point(timeline_, ++value_);
    muster_point point = MUSTER_POINT_NONE;
    ok(muster_collect(session_, &nothing, &submit, &point));
  }
  void release() { ok(muster_timeline_signal(session_, timeline_, value_)); }

 private:
  muster_session* session_;
  muster_lane lane_;
  std::uint32_t timeline_ = 0;
  std::uint64_t value_ = 0;
};

// The lanes of a set take the next numbers, in this order.
enum class SetLane : std::uint32_t { kGather, kReduce, kAllReduce, kCompute };

muster_lane next_lane(const Member& member) {
  muster_lane lane = MUSTER_LANE_NONE;
  ok(muster_lane_create(member.session, MUSTER_LANE_COPY, "probe", &lane));
  ok(muster_lane_destroy(member.session, lane));
  return lane;
}

HeldLane held(const Member& member, muster_lane first, SetLane which) {
  return {member, which == SetLane::kCompute ? muster_lane{MUSTER_LANE_COMPUTE}
                                             : first + static_cast<muster_lane>(which)};
}

constexpr std::uint64_t kBlockBytes = 256;

// A root and blocks of kBlockBytes each, in two parameters.
std::vector<UnitSpec> equal_units(int blocks, std::int32_t after_forward = MUSTER_RESHARD_DEFAULT) {
  std::vector<UnitSpec> specs{{"root", {{{8, 8}}}, after_forward, MUSTER_UNIT_ROOT}};
  for (int i = 0; i < blocks; ++i)
    specs.push_back({"block." + std::to_string(i), {{{9, 6}}, {{10}}}, after_forward, 0});
  return specs;
}

class UnitCases : public RunningRanks {
 protected:
  // What the ranks have of all gradients after a second step, in whose backward a lane stood still.
  using Shards = std::vector<std::vector<float>>;
  Shards gradients(bool slow) {
    Shards found(4);
    mesh = "dp_replicate=2,dp_shard=2";
    with_ranks(4, [&](Member& member) {
      const muster_lane first = next_lane(member);
      Setting setting;
      setting.reduce_dtype = MUSTER_BF16;
      Model model(member, equal_units(6), setting);
      model.initialise();
      model.step(1.0 / 64);
      model.wait();
      HeldLane lane = held(member, first, SetLane::kAllReduce);
      ok(muster_step_begin(model.units, MUSTER_POINT_NONE, 0));
      for (std::size_t u = 0; u < 7; ++u) model.forward(u);
      if (slow) lane.hold();
      for (std::size_t u = 7; u-- > 0;) model.backward(u, 0, 0);
      muster_point done[2];
      ok(muster_step_end(model.units, model.latest(), done));
      model.wait();  // gradients are written, into places that reductions have left
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      if (slow) {
        EXPECT_EQ(muster_point_test(member.session, done[0]), MUSTER_PENDING) << "the lane is held";
        lane.release();
      }
      for (const muster_point point : done) ok(muster_point_wait(member.session, point, -1));
      found[static_cast<std::size_t>(member.rank)] = model.shards(MUSTER_UNIT_GRADIENT_SHARD);
      meet_and_leave(member);
    });
    return found;
  }
  // What the ranks have of all parameters after ten steps. In each but the first nothing begins on some lane
  // until all has been started.
  Shards trained(const std::string& shape, std::int32_t after_forward, const SetLane* slow,
                 std::uint32_t prefetch = 1) {
    Shards found(4);
    mesh = shape;
    with_ranks(4, [&](Member& member) {
      const muster_lane first = next_lane(member);
      Setting setting;
      setting.prefetch = prefetch;
      Model model(member, equal_units(4, after_forward), setting);
      model.initialise();
      model.step(1.0 / 64);
      HeldLane lane = held(member, first, slow == nullptr ? SetLane::kCompute : *slow);
      for (int step = 1; step < 10; ++step) {
        if (slow != nullptr) lane.hold();
        model.step(1.0 / 64);
        if (slow == nullptr) continue;
        std::this_thread::sleep_for(std::chrono::milliseconds(1));  // for what would begin too early
        lane.release();
      }
      model.wait();
      found[static_cast<std::size_t>(member.rank)] = model.shards();
      const bool all_are_freed =
          after_forward == MUSTER_RESHARD_ALWAYS || after_forward == MUSTER_RESHARD_DEFAULT;
      if (all_are_freed) {
        EXPECT_EQ(model.info().place_bytes, (2 + prefetch) * kBlockBytes)
            << "the root, and 1 + prefetch blocks";
      }
      EXPECT_EQ(model.info().gradient_bytes, 3 * kBlockBytes) << "the root's, and two blocks'";
      meet_and_leave(member);
    });
    return found;
  }
  void expect_equal_bits(const std::string& shape, std::int32_t after_forward) {
    const Shards usual = trained(shape, after_forward, nullptr);
    for (const SetLane slow : {SetLane::kGather, SetLane::kReduce, SetLane::kAllReduce, SetLane::kCompute})
      EXPECT_EQ(trained(shape, after_forward, &slow), usual)
          << "after_forward " << after_forward << ", lane " << static_cast<std::uint32_t>(slow);
  }
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

// Goal:   case F12: a slow all-reduce lane mixes up no layers' gradients, which are reduced in bf16 for
//         parameters in f32.
// Method: the lane is held until all gradients of seven layers are scattered, and 50 ms more.
TEST_F(UnitCases, HaveTheSameGradientsHoweverSlowAllReducesAre) {
  const Shards usual = gradients(false);
  EXPECT_EQ(gradients(true), usual);
  EXPECT_NE(usual[0], usual[1]);
}

// Goal:   case F13: whichever lane is slow, and whatever is freed after forward, parameters are the same to
//         the bit after ten steps. Two blocks are gathered at most, and one waits for its reduction.
TEST_F(UnitCases, TrainToTheSameBitsWhicheverLaneIsSlow) {
  for (const std::int32_t after_forward :
       {MUSTER_RESHARD_ALWAYS, MUSTER_RESHARD_NEVER, MUSTER_RESHARD_DEFAULT})
    expect_equal_bits("dp_replicate=2,dp_shard=2", after_forward);
}

// Goal:   case F13, however far ahead units are gathered.
TEST_F(UnitCases, TrainToTheSameBitsAtAnyDepthOfPrefetch) {
  const std::string shape = "dp_replicate=2,dp_shard=2";
  const Shards usual = trained(shape, MUSTER_RESHARD_ALWAYS, nullptr);
  for (const std::uint32_t prefetch : {0U, 2U})
    for (const SetLane slow : {SetLane::kGather, SetLane::kCompute})
      EXPECT_EQ(trained(shape, MUSTER_RESHARD_ALWAYS, &slow, prefetch), usual)
          << "prefetch " << prefetch << ", lane " << static_cast<std::uint32_t>(slow);
}

// Goal:   case F13, where two of four ranks keep what they do not free.
TEST_F(UnitCases, TrainToTheSameBitsOfSlicesWhicheverLaneIsSlow) {
  expect_equal_bits("dp_shard=4", 2);
}

// Goal:   case F15: how many gradients may wait for their reduction is one number for all modules of a set,
//         from 1 to 16. There is no number per module of which the largest would count.
// Method: no reduction ends. With 3, three modules' gradients wait, a fourth's are written, and no more.
TEST_F(UnitCases, LetSoManyGradientsWaitForTheirReduction) {
  mesh = "dp_shard=2";
  with_ranks(2, [&](Member& member) {
    for (const std::uint32_t inputs : {0U, 17U}) {
      muster_units_options options = MUSTER_UNITS_OPTIONS_INIT;
      options.reduce_inputs = inputs;
      muster_units* units = nullptr;
      EXPECT_EQ(muster_units_create(member.session, &options, &units), MUSTER_ERR_BAD_ARGUMENT);
      EXPECT_EQ(muster_last_error(), "reduce_inputs is " + std::to_string(inputs) + "; 1 to 16 are possible");
    }
    const muster_lane first = next_lane(member);
    Setting setting;
    setting.reduce_inputs = 3;
    Model model(member, equal_units(6), setting);
    model.initialise();
    model.step(1.0 / 64);
    model.wait();
    EXPECT_EQ(model.info().gradient_bytes, (1 + 4) * kBlockBytes) << "the root's lie apart";
    HeldLane lane = held(member, first, SetLane::kReduce);
    lane.hold();
    ok(muster_step_begin(model.units, MUSTER_POINT_NONE, 0));
    for (std::size_t u = 0; u < 7; ++u) model.forward(u);
    for (std::size_t u = 6; u > 2; --u) model.backward(u, 0, 0);
    model.wait();
    model.backward(2, 0, 0);
    EXPECT_EQ(muster_point_test(member.session, model.latest()), MUSTER_PENDING);
    lane.release();
    muster_point done[2];
    ok(muster_step_end(model.units, model.latest(), done));
    model.wait();
    for (const muster_point point : done) ok(muster_point_wait(member.session, point, -1));
    meet_and_leave(member);
  });
}

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
