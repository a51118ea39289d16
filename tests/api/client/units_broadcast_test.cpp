// Replicas of a set of units made equal: which rank gives, who gets, and when.
#include <muster/units.h>

#include "tests/api/client/running_ranks.hpp"
#include "tests/api/client/small_model.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <gmock/gmock.h>

namespace {

using muster::test::Member;
using muster::test::ok;
using muster::test::SmallModel;
using muster::test::SmallSetting;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr std::uint32_t kColumn = SmallModel::kColumn, kRow = SmallModel::kRow, kNorm = SmallModel::kNorm;

class UnitsBroadcast : public muster::test::RunningRanks {
 protected:
  static void broadcast(const SmallModel& model) {
    muster_point done = MUSTER_POINT_NONE;
    ok(muster_units_broadcast(model.units, MUSTER_POINT_NONE, &done));
    ok(muster_point_wait(model.session(), done, -1));
  }
  static void fill(const SmallModel& model, float value) {
    for (const std::uint32_t p : {kColumn, kRow, kNorm}) model.fill(p, MUSTER_UNIT_SHARD, value);
  }
  // The rank with this one's coordinates along `dims`, and 0 along the others.
  static int first_of(const Member& member, const std::vector<std::string>& dims) {
    int rank = 0;
    for (const char* dim : {"pp", "dp_replicate", "dp_shard", "cp", "domain", "tp"}) {
      std::int32_t coordinate = 0;
      std::int32_t size = 0;
      ok(muster_mesh_coords(member.session, dim, &coordinate, &size));
      const bool is_kept = std::find(dims.begin(), dims.end(), dim) != dims.end();
      rank = rank * size + (is_kept ? coordinate : 0);
    }
    return rank;
  }
};

// Goal:   case T9. Over TP2 x DP2 ranks 0 and 2 get the parts of rank 0, ranks 1 and 3 those of rank 1, and
//         what tp does not cut is that of rank 0 everywhere. Gradients are reduced over {0, 2} and {1, 3}.
TEST_F(UnitsBroadcast, KeepsThePartsOfTensorParallelismApart) {
  mesh = "dp_replicate=2,dp_shard=1,tp=2";
  with_ranks(4, [&](Member& member) {
    const int tp = member.rank % 2;
    muster_group group = 0;
    std::vector<std::int32_t> ranks(2);
    std::size_t count = 0;
    ok(muster_mesh_group(member.session, "dp_replicate", &group));
    ok(muster_group_ranks(member.session, group, ranks.data(), ranks.size(), &count));
    EXPECT_THAT(ranks, ElementsAre(tp, tp + 2));

    SmallModel model(member);
    fill(model, static_cast<float>(member.rank + 1));
    broadcast(model);
    model.expect(kColumn, MUSTER_UNIT_SHARD, static_cast<float>(tp + 1));
    model.expect(kRow, MUSTER_UNIT_SHARD, static_cast<float>(tp + 1));
    model.expect(kNorm, MUSTER_UNIT_SHARD, 1);

    const auto own = static_cast<float>(member.rank + 1);
    model.step({own, own, own});
    const auto mean = static_cast<float>(tp + 2);  // of 1 and 3, or of 2 and 4
    for (const std::uint32_t p : {kColumn, kRow, kNorm}) model.expect(p, MUSTER_UNIT_GRADIENT_SHARD, mean);
    meet_and_leave(member);
  });
}

// Goal:   on every mesh each parameter comes from the rank that has coordinate 0 along all dims that do not
//         cut it, and stages of a pipeline do not mix.
// Method: ranks fill all they have with their number. Units are sharded or not, and used as they are, in
//         another dtype, or in memory that ranks share.
TEST_F(UnitsBroadcast, TakesEachParameterFromTheFirstRankThatHasIt) {
  struct Shape {
    int world;
    const char* mesh;
  };
  for (const Shape& shape : {Shape{1, "dp_shard=1"}, Shape{2, "domain=2,dp_shard=1"}, Shape{3, "dp_shard=3"},
                             Shape{4, "pp=2,dp_replicate=2,dp_shard=1"}, Shape{6, "dp_shard=3,tp=2"},
                             Shape{8, "dp_replicate=2,dp_shard=2,tp=2"}, Shape{12, "dp_shard=2,cp=3,tp=2"}}) {
    mesh = shape.mesh;
    with_ranks(shape.world, [&](Member& member) {
      for (SmallSetting setting :
           {SmallSetting{}, SmallSetting{.whole_dtype = MUSTER_BF16}, SmallSetting{.sharded = false},
            SmallSetting{.set_flags = MUSTER_UNITS_SHARE_ON_NODE}}) {
        if (mesh.starts_with("domain")) setting.flags = MUSTER_PARAMETER_LOCAL;  // its units name no domain
        std::vector<std::string> cut{"pp"};
        if (setting.sharded) cut.insert(cut.end(), {"dp_shard", "cp"});
        const auto replicated = static_cast<float>(first_of(member, cut));
        cut.emplace_back("tp");
        const auto tp_part = static_cast<float>(first_of(member, cut));
        SmallModel model(member, setting);
        fill(model, static_cast<float>(member.rank));
        broadcast(model);
        SCOPED_TRACE(shape.mesh);
        model.expect(kColumn, MUSTER_UNIT_SHARD, tp_part);
        model.expect(kRow, MUSTER_UNIT_SHARD, tp_part);
        model.expect(kNorm, MUSTER_UNIT_SHARD, replicated);
        meet_and_leave(member);
      }
    });
  }
}

// Goal:   shards that lie in memory of all their ranks, row by row between those of others, are broadcast
//         alone.
TEST_F(UnitsBroadcast, LeavesTheShardsOfOthersAlone) {
  mesh = "dp_replicate=2,dp_shard=2";
  with_ranks(4, [&](Member& member) {
    muster_units_options set = MUSTER_UNITS_OPTIONS_INIT;
    set.flags = MUSTER_UNITS_SHARE_ON_NODE;
    muster_units* units = nullptr;
    ok(muster_units_create(member.session, &set, &units));
    muster_layout_options said = MUSTER_LAYOUT_OPTIONS_INIT;
    said.dims = 2;
    said.shape[0] = 3;
    said.shape[1] = 4;
    said.axis_count = 1;
    said.axes[0].name = "dp_shard";
    said.axes[0].placement = MUSTER_SHARD;
    said.axes[0].dim = 1;
    muster_layout* layout = nullptr;
    ok(muster_layout_create(member.session, &said, &layout));
    const muster_parameter parameter{"w", layout, MUSTER_F32, MUSTER_PARAMETER_FROZEN};
    muster_unit_options options = MUSTER_UNIT_OPTIONS_INIT;
    options.name = "unit";
    options.shard = "dp_shard";
    options.replicate = "dp_replicate";
    options.parameters = &parameter;
    options.parameter_count = 1;
    muster_unit unit = 0;
    ok(muster_unit_create(units, &options, &unit));
    muster_tensor shard{};
    ok(muster_unit_tensor(units, unit, 0, MUSTER_UNIT_SHARD, &shard));
    muster_buffer_info info = MUSTER_BUFFER_INFO_INIT;
    ok(muster_buffer_query(member.session, shard.buffer, &info));
    auto* first = reinterpret_cast<float*>(static_cast<std::byte*>(info.address) + shard.offset_bytes);
    EXPECT_EQ(shard.stride[0], 4);
    const auto each = [&](const auto& body) {
      for (std::int64_t i = 0; i < 3; ++i)
        for (std::int64_t j = 0; j < 2; ++j) body(first[i * shard.stride[0] + j]);
    };
    each([&](float& element) { element = static_cast<float>(member.rank + 1); });
    muster_point done = MUSTER_POINT_NONE;
    ok(muster_units_broadcast(units, MUSTER_POINT_NONE, &done));
    ok(muster_point_wait(member.session, done, -1));
    each([&](const float& element) { EXPECT_EQ(element, static_cast<float>(member.rank % 2 + 1)); });
    meet_and_leave(member);
    ok(muster_units_destroy(units));
    ok(muster_layout_destroy(layout));
    meet_and_leave(member);
  });
}

// Goal:   also between steps, and what the next step sees is what was broadcast, even if it says that shards
//         are unchanged and they were whole already.
TEST_F(UnitsBroadcast, IsSeenByTheNextStep) {
  mesh = "dp_replicate=2,dp_shard=2";
  with_ranks(4, [&](Member& member) {
    SmallModel model(member, {.after_forward = MUSTER_RESHARD_NEVER});
    model.begin();
    model.end();
    fill(model, static_cast<float>(member.rank / 2 + 5));
    muster_point done = MUSTER_POINT_NONE;
    ok(muster_units_broadcast(model.units, MUSTER_POINT_NONE, &done));
    model.begin(MUSTER_STEP_UNCHANGED);
    for (const std::uint32_t p : {kColumn, kRow, kNorm}) model.expect(p, MUSTER_UNIT_WHOLE, 5);
    EXPECT_EQ(muster_units_broadcast(model.units, MUSTER_POINT_NONE, &done), MUSTER_ERR_STATE);
    EXPECT_THAT(muster_last_error(), HasSubstr("between two steps, and not in one"));
    model.end();
    EXPECT_EQ(muster_units_broadcast(model.units, MUSTER_POINT_NONE, nullptr), MUSTER_ERR_BAD_ARGUMENT);
    meet_and_leave(member);
  });
}

// Goal:   before the first step it compares the units of all ranks, as the first step would.
TEST_F(UnitsBroadcast, ComparesTheUnitsFirst) {
  mesh = "dp_replicate=2,dp_shard=1";
  with_ranks(2, [&](Member& member) {
    muster_point done = MUSTER_POINT_NONE;
    {
      SmallModel model(member, {.whole_dtype = member.rank == 1 ? MUSTER_BF16 : MUSTER_F32});
      EXPECT_EQ(muster_units_broadcast(model.units, MUSTER_POINT_NONE, &done), MUSTER_ERR_MISMATCH);
      EXPECT_THAT(muster_last_error(), HasSubstr("ranks have made different units. Rank 0"));
    }
    SmallModel model(member);
    broadcast(model);
    muster_unit_options late = MUSTER_UNIT_OPTIONS_INIT;
    late.name = "late";
    const muster_parameter parameter{"late", nullptr, MUSTER_F32, 0};
    late.parameters = &parameter;
    late.parameter_count = 1;
    muster_unit unit = 0;
    EXPECT_EQ(muster_unit_create(model.units, &late, &unit), MUSTER_ERR_STATE);
    EXPECT_THAT(muster_last_error(), HasSubstr("make all units before it"));
    meet_and_leave(member);
  });
}

// Goal:   a unit sharded over dims with unknown replicas is refused before anything moves.
TEST_F(UnitsBroadcast, RefusesOtherDims) {
  mesh = "dp_shard=4,ep=2";
  with_ranks(4, [&](Member& member) {
    muster_units* units = nullptr;
    ok(muster_units_create(member.session, nullptr, &units));
    muster_layout_options said = MUSTER_LAYOUT_OPTIONS_INIT;
    said.dims = 1;
    said.shape[0] = 6;
    said.axis_count = 1;
    said.axes[0].name = "efsdp";
    said.axes[0].placement = MUSTER_SHARD;
    muster_layout* layout = nullptr;
    ok(muster_layout_create(member.session, &said, &layout));
    const muster_parameter parameter{"experts", layout, MUSTER_F32, MUSTER_PARAMETER_LOCAL};
    muster_unit_options options = MUSTER_UNIT_OPTIONS_INIT;
    options.name = "experts";
    options.shard = "efsdp";
    options.parameters = &parameter;
    options.parameter_count = 1;
    muster_unit unit = 0;
    ok(muster_unit_create(units, &options, &unit));
    muster_point done = MUSTER_POINT_NONE;
    EXPECT_EQ(muster_units_broadcast(units, MUSTER_POINT_NONE, &done), MUSTER_ERR_UNSUPPORTED);
    EXPECT_THAT(muster_last_error(), HasSubstr("parameter \"experts\" is sharded over \"efsdp\""));
    ok(muster_units_destroy(units));
    ok(muster_layout_destroy(layout));
    meet_and_leave(member);
  });
}

// Goal:   after a step that broke, ranks meet again and can broadcast.
TEST_F(UnitsBroadcast, WorksAfterAStepThatWasAbandoned) {
  mesh = "dp_replicate=2,dp_shard=2";
  with_ranks(4, [&](Member& member) {
    SmallModel model(member);
    broadcast(model);
    ok(muster_step_begin(model.units, MUSTER_POINT_NONE, 0));
    await_all(member);
    muster_point ready[2] = {};
    if (member.rank == 0) {
      EXPECT_EQ(muster_unit_backward_begin(model.units, 0, ready), MUSTER_ERR_STATE);  // aborts its groups
    } else {
      (void)muster_unit_forward_begin(model.units, 0, ready);
      (void)muster_point_wait(member.session, ready[0], -1);
    }
    ok(muster_step_abandon(model.units));
    fill(model, static_cast<float>(member.rank / 2 + 5));
    broadcast(model);
    model.expect(kColumn, MUSTER_UNIT_SHARD, 5);
    model.step({1, 1, 1});
    meet_and_leave(member);
  });
}

}  // namespace
