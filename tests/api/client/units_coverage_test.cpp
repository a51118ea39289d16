// Every dim of the mesh cuts a trained parameter of each unit, or the unit names it: else replicas train
// apart.
#include "tests/api/client/ok.hpp"
#include "tests/api/client/running_ranks.hpp"

#include <cstdint>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <muster/units.h>

namespace muster::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

struct Wanted {
  std::string name;
  std::vector<const char*> cut_by;  // dims of the mesh; the first cuts dim 0, the second dim 1
  std::uint32_t flags = 0;
};

class UnitCoverage : public RunningRanks {
 protected:
  // The status of the first step of a set with one unit.
  static muster_status_t first_step(Member& member, const muster_unit_options& said,
                                    const std::vector<Wanted>& parameters, std::uint32_t set_flags = 0) {
    muster_units_options set = MUSTER_UNITS_OPTIONS_INIT;
    set.flags = set_flags;
    muster_units* units = nullptr;
    ok(muster_units_create(member.session, &set, &units));
    std::vector<muster_layout*> layouts;
    std::vector<muster_parameter> all;
    for (const Wanted& wanted : parameters) {
      muster_layout_options options = MUSTER_LAYOUT_OPTIONS_INIT;
      options.dims = 2;
      options.shape[0] = options.shape[1] = 8;
      options.axis_count = static_cast<std::int32_t>(wanted.cut_by.size());
      for (std::size_t i = 0; i < wanted.cut_by.size(); ++i) {
        options.axes[i].name = wanted.cut_by[i];
        options.axes[i].placement = MUSTER_SHARD;
        options.axes[i].dim = static_cast<std::int32_t>(i);
      }
      layouts.push_back(nullptr);
      ok(muster_layout_create(member.session, &options, &layouts.back()));
      all.push_back({wanted.name.c_str(), layouts.back(), MUSTER_F32, wanted.flags});
    }
    muster_unit_options options = said;
    options.name = "layer";
    options.parameters = all.data();
    options.parameter_count = static_cast<std::uint32_t>(all.size());
    muster_unit unit = 0;
    ok(muster_unit_create(units, &options, &unit));
    const muster_status_t status = muster_step_begin(units, MUSTER_POINT_NONE, 0);
    const std::string why = muster_last_error();
    if (status == MUSTER_OK) {
      muster_point done[2];
      ok(muster_step_end(units, MUSTER_POINT_NONE, done));
    }
    ok(muster_units_destroy(units));
    for (muster_layout* layout : layouts) ok(muster_layout_destroy(layout));
    last = why;
    return status;
  }
  static muster_unit_options over(const char* shard, const char* replicate, const char* tensor) {
    muster_unit_options options = MUSTER_UNIT_OPTIONS_INIT;
    options.shard = shard;
    options.replicate = replicate;
    options.tensor = tensor;
    return options;
  }
  static thread_local std::string last;
};
thread_local std::string UnitCoverage::last;

TEST_F(UnitCoverage, RefusesReplicasThatNobodyNames) {
  mesh = "dp_replicate=2,dp_shard=2";
  with_ranks(4, [&](Member& member) {
    const std::vector<Wanted> rows{{"w", {"dp_shard"}}};
    EXPECT_EQ(first_step(member, over("dp_shard", nullptr, nullptr), rows), MUSTER_ERR_BAD_ARGUMENT);
    EXPECT_THAT(last,
                AllOf(HasSubstr("unit \"layer\""), HasSubstr("2 ranks along \"dp_replicate\""),
                      HasSubstr("replicas of \"w\" would train apart"), HasSubstr("MUSTER_PARAMETER_LOCAL")));
    EXPECT_EQ(first_step(member, over("dp_shard", "dp_replicate", nullptr), rows), MUSTER_OK) << last;
    // A unit without shards names both at once.
    const std::vector<Wanted> whole{{"w", {}}};
    EXPECT_EQ(first_step(member, over(nullptr, "dp", nullptr), whole), MUSTER_OK) << last;
    EXPECT_EQ(first_step(member, over(nullptr, "dp_replicate", nullptr), whole), MUSTER_ERR_BAD_ARGUMENT);
    EXPECT_THAT(last, HasSubstr("along \"dp_shard\""));
  });
}

// Goal:   reports call the ranks of a sharded model by a name that its users know, not by one of experts.
TEST_F(UnitCoverage, LeavesGroupsTheirUsualNames) {
  mesh = "dp_replicate=2,dp_shard=2,tp=2";
  with_ranks(8, [&](Member& member) {
    EXPECT_EQ(first_step(member, over("dp_shard", "dp_replicate", nullptr), {{"w", {"dp_shard", "tp"}}}),
              MUSTER_OK)
        << last;
    muster_group weight = 0;
    ok(muster_mesh_group(member.session, "weight", &weight));
    muster_group_info info = MUSTER_GROUP_INFO_INIT;
    ok(muster_group_query(member.session, weight, &info));
    EXPECT_EQ(info.ranks, 4);
    EXPECT_STREQ(info.name, "weight");
  });
}

// Goal:   a parameter may be declared local, or frozen: a frozen parameter trains nowhere.
TEST_F(UnitCoverage, LetsReplicasBeLocalOrFrozen) {
  mesh = "dp_replicate=2,dp_shard=2";
  with_ranks(4, [&](Member& member) {
    const muster_unit_options sharded = over("dp_shard", nullptr, nullptr);
    EXPECT_EQ(first_step(member, sharded, {{"w", {"dp_shard"}, MUSTER_PARAMETER_LOCAL}}), MUSTER_OK) << last;
    EXPECT_EQ(first_step(member, sharded, {{"w", {"dp_shard"}, MUSTER_PARAMETER_FROZEN}}), MUSTER_OK) << last;
    EXPECT_EQ(
        first_step(member, sharded, {{"mine", {"dp_shard"}, MUSTER_PARAMETER_LOCAL}, {"ours", {"dp_shard"}}}),
        MUSTER_ERR_BAD_ARGUMENT);
    EXPECT_THAT(last, HasSubstr("replicas of \"ours\""));
    EXPECT_EQ(first_step(member, over(nullptr, nullptr, nullptr), {{"w", {}}}, MUSTER_UNITS_ALONE), MUSTER_OK)
        << last;
  });
}

// Goal:   tp cuts a parameter of the unit, or the unit names it; norms beside it are as they were.
TEST_F(UnitCoverage, KnowsTensorParallelUnits) {
  mesh = "dp_shard=2,tp=2";
  with_ranks(4, [&](Member& member) {
    const muster_unit_options sharded = over("dp_shard", nullptr, nullptr);
    EXPECT_EQ(first_step(member, sharded, {{"w", {"dp_shard", "tp"}}, {"norm", {"dp_shard"}}}), MUSTER_OK)
        << last;
    EXPECT_EQ(first_step(member, sharded, {{"norm", {"dp_shard"}}}), MUSTER_ERR_BAD_ARGUMENT);
    EXPECT_THAT(last, AllOf(HasSubstr("along \"tp\""), HasSubstr("name it (tensor)")));
    EXPECT_EQ(first_step(member, over("dp_shard", nullptr, "tp"), {{"norm", {"dp_shard"}}}), MUSTER_OK)
        << last;
    EXPECT_EQ(first_step(member, sharded,
                         {{"w", {"dp_shard", "tp"}, MUSTER_PARAMETER_FROZEN}, {"norm", {"dp_shard"}}}),
              MUSTER_ERR_BAD_ARGUMENT)
        << "what is frozen says nothing";
  });
}

// Goal:   a product of dims names each of them: cp in dp_shard_cp, and experts' ep and efsdp together.
TEST_F(UnitCoverage, KnowsProductsOfDims) {
  mesh = "dp_shard=2,cp=2";
  with_ranks(4, [&](Member& member) {
    EXPECT_EQ(first_step(member, over("dp_shard_cp", nullptr, nullptr), {{"w", {"dp_shard_cp"}}}), MUSTER_OK)
        << last;
    EXPECT_EQ(first_step(member, over("dp_shard", nullptr, nullptr), {{"w", {"dp_shard"}}}),
              MUSTER_ERR_BAD_ARGUMENT);
    EXPECT_THAT(last, HasSubstr("along \"cp\""));
    EXPECT_EQ(first_step(member, over("dp_shard", "cp", nullptr), {{"w", {"dp_shard"}}}), MUSTER_OK) << last;
  });
}

TEST_F(UnitCoverage, KnowsExperts) {
  mesh = "dp_shard=4,ep=2";
  with_ranks(4, [&](Member& member) {
    const std::vector<Wanted> experts{{"w", {"ep", "efsdp"}}};
    EXPECT_EQ(first_step(member, over("efsdp", nullptr, nullptr), experts), MUSTER_OK) << last;
    EXPECT_EQ(first_step(member, over("efsdp", nullptr, nullptr), {{"w", {"efsdp"}}}),
              MUSTER_ERR_BAD_ARGUMENT);
    EXPECT_THAT(last, HasSubstr("along \"dp_shard\""));
  });
}

// Goal:   what one parameter is cut by is no word for the next: each rank along a dim of data has other data.
TEST_F(UnitCoverage, AsksOfEachParameterWhereDimsOfDataCutAnother) {
  mesh = "dp_shard=2,cp=2";
  with_ranks(4, [&](Member& member) {
    const std::vector<Wanted> both{{"table", {"dp_shard", "cp"}}, {"norm", {"dp_shard"}}};
    EXPECT_EQ(first_step(member, over("dp_shard", nullptr, nullptr), both), MUSTER_ERR_BAD_ARGUMENT);
    EXPECT_THAT(last, AllOf(HasSubstr("2 ranks along \"cp\""), HasSubstr("replicas of \"norm\"")));
    EXPECT_EQ(first_step(member, over("dp_shard", nullptr, nullptr),
                         {both[0], {"norm", {"dp_shard"}, MUSTER_PARAMETER_LOCAL}}),
              MUSTER_OK)
        << last;
  });
}

TEST_F(UnitCoverage, AsksOfEachParameterBesideATableThatReplicasCut) {
  mesh = "dp_replicate=2,dp_shard=2";
  with_ranks(4, [&](Member& member) {
    const std::vector<Wanted> tables{{"mlp", {}}, {"table", {"dp_replicate", "dp_shard"}}};
    EXPECT_EQ(first_step(member, over(nullptr, nullptr, nullptr), tables), MUSTER_ERR_BAD_ARGUMENT);
    EXPECT_THAT(last, AllOf(HasSubstr("along \"dp_replicate\""), HasSubstr("replicas of \"mlp\"")));
    EXPECT_EQ(first_step(member, over(nullptr, nullptr, nullptr), {tables[1]}), MUSTER_OK) << last;
  });
}

// Goal:   a router among experts is one of each rank along ep, whose ranks see other tokens.
TEST_F(UnitCoverage, AsksOfARouterAmongExperts) {
  mesh = "dp_shard=4,ep=2";
  with_ranks(4, [&](Member& member) {
    const Wanted experts{"experts", {"ep", "efsdp"}}, router{"router", {"efsdp"}};
    EXPECT_EQ(first_step(member, over("efsdp", nullptr, nullptr), {experts, router}),
              MUSTER_ERR_BAD_ARGUMENT);
    EXPECT_THAT(last, HasSubstr("replicas of \"router\" would train apart"));
    EXPECT_EQ(first_step(member, over("efsdp", nullptr, nullptr), {experts}), MUSTER_OK) << last;
    EXPECT_EQ(first_step(member, over("dp_shard", nullptr, nullptr), {{"router", {"dp_shard"}}}), MUSTER_OK)
        << last;
  });
}

// Goal:   three dims at once, and a dim that a product names though it cuts nothing.
TEST_F(UnitCoverage, KnowsThreeDimsAtOnce) {
  mesh = "dp_replicate=2,dp_shard=2,tp=2";
  with_ranks(8, [&](Member& member) {
    const std::vector<Wanted> mixed{{"w", {"dp_shard", "tp"}}, {"norm", {"dp_shard"}}};
    EXPECT_EQ(first_step(member, over("dp_shard", "dp_replicate", nullptr), mixed), MUSTER_OK) << last;
    EXPECT_EQ(first_step(member, over("dp_shard", nullptr, "tp"), mixed), MUSTER_ERR_BAD_ARGUMENT);
    EXPECT_THAT(last, HasSubstr("along \"dp_replicate\""));
    EXPECT_EQ(first_step(member, over("dp_shard", "dp_replicate", nullptr), {mixed[1]}),
              MUSTER_ERR_BAD_ARGUMENT);
    EXPECT_THAT(last, HasSubstr("along \"tp\""));
    EXPECT_EQ(first_step(member, over(nullptr, "dp", "tp"), {{"bias", {}}}), MUSTER_OK) << last;
    EXPECT_EQ(first_step(member, over(nullptr, "dp", nullptr), {{"bias", {}}}), MUSTER_ERR_BAD_ARGUMENT);
    EXPECT_THAT(last, HasSubstr("along \"tp\""));
  });
}

}  // namespace
}  // namespace muster::test
