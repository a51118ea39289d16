// Layouts of the C API.
#include <muster/layouts.h>

#include "tests/api/client/made_layouts.hpp"
#include "tests/api/client/running_ranks.hpp"

#include <cstring>
#include <string>

#include <gmock/gmock.h>
#include <muster/tensor_parallel.h>

namespace muster::test {
namespace {

using ::testing::HasSubstr;

std::string refusal(const muster_layout_options& options) {
  auto* layout = reinterpret_cast<muster_layout*>(8);
  EXPECT_EQ(muster_layout_create(nullptr, &options, &layout), MUSTER_ERR_BAD_ARGUMENT);
  EXPECT_EQ(layout, nullptr);
  return muster_last_error();
}

// Goal:   case X2, with the numbers of layouts.h.
TEST(CLayouts, GiveFsdpRanksTheRowsThatTpLeft) {
  const LayoutHandle layout = made({9, 3}, {shard("dp_shard", 4, 0), shard("tp", 2, 0)});
  std::int32_t ranks = 0;
  ASSERT_EQ(muster_layout_ranks(layout.get(), &ranks), MUSTER_OK);
  EXPECT_EQ(ranks, 8);
  const Numbers first = {0, 5, 2, 6, 4, 7, -1, 8};
  const Numbers rows = {2, 1, 2, 1, 1, 1, 0, 1};
  for (std::int32_t rank = 0; rank < 8; ++rank) {
    const auto i = static_cast<std::size_t>(rank);
    EXPECT_EQ(local_shape(layout, rank, 2), (Numbers{rows[i], 3}));
    const std::vector<muster_box> found = pieces(layout, rank);
    ASSERT_EQ(found.size(), rows[i] > 0 ? 1u : 0u);
    EXPECT_TRUE(found.empty() || found[0].offset[0] == first[i]) << rank;
  }
}

// Goal:   case T11: q, k and v of 8, 4 and 4 rows are three pieces.
TEST(CLayouts, OfAFusedDimHaveSeveralPieces) {
  muster_layout_axis tp = shard("tp", 2, 0, MUSTER_SPLIT_BALANCED);
  const Numbers fused = {8, 4, 4};
  tp.fused = fused.data();
  tp.fused_count = 3;
  const LayoutHandle layout = made({16, 5}, {tp});
  const std::vector<muster_box> found = pieces(layout, 1);
  ASSERT_EQ(found.size(), 3u);
  EXPECT_EQ(found[1].offset[0], 10);
  EXPECT_EQ(found[1].length[0], 2);
  EXPECT_EQ(found[1].length[1], 5);
  EXPECT_EQ(found[1].at[0], 4);
  muster_box only[1] = {};
  std::size_t count = 0;
  EXPECT_EQ(muster_layout_boxes(layout.get(), 1, only, 1, &count), MUSTER_OK);
  EXPECT_EQ(count, 3u);
  EXPECT_EQ(std::memcmp(only, found.data(), sizeof only), 0);
}

TEST(CLayouts, TakeEachSplitAndOrder) {
  muster_layout_axis heads = shard(nullptr, 4, 0, MUSTER_SPLIT_ALIGNED);
  heads.grain = 64;
  EXPECT_EQ(local_shape(made({384}, {heads}), 3, 1), (Numbers{64}));
  const Numbers lengths = {1, 0, 8};
  muster_layout_axis given = shard(nullptr, 3, 0, MUSTER_SPLIT_GIVEN);
  given.lengths = lengths.data();
  given.length_count = 3;
  EXPECT_EQ(local_shape(made({9}, {given}), 2, 1), (Numbers{8}));
  EXPECT_EQ(local_shape(made({10}, {shard(nullptr, 3, 0, MUSTER_SPLIT_BALANCED)}), 0, 1), (Numbers{4}));

  muster_layout_options options = described({8}, {shard("a", 2, 0), shard("b", 2, 0)});
  EXPECT_EQ(pieces(made(options), 1)[0].offset[0], 4);
  options.order = MUSTER_CUT_OUTERMOST_FIRST;
  EXPECT_EQ(pieces(made(options), 1)[0].offset[0], 2);
  EXPECT_EQ(local_shape(made({4, 4}, {partial("a", 2, MUSTER_MAX)}), 1, 2), (Numbers{4, 4}));
}

TEST(CLayouts, RefuseOptionsThatAreNone) {
  muster_layout_options options = described({9}, {shard("tp", 2, 0)});
  options.size = 8;
  EXPECT_THAT(refusal(options),
              HasSubstr("muster_layout_options has size 8; initialise it with its _INIT macro"));
  options = described({9}, {});
  options.dims = 9;
  EXPECT_EQ(refusal(options), "dims is 9; 0 to 8 are possible");
  options.dims = -1;
  EXPECT_EQ(refusal(options), "dims is -1; 0 to 8 are possible");
  options.dims = 1;
  options.axis_count = 9;
  EXPECT_EQ(refusal(options), "axis_count is 9; at most 8 are possible");
  options.axis_count = 0;
  options.order = 2;
  EXPECT_THAT(refusal(options), HasSubstr("order is 2, which is none of"));
  options = described({-9}, {});
  EXPECT_EQ(refusal(options), "dim 0 of the tensor has length -9; it must be 0 or more");
}

TEST(CLayouts, RefuseAxesThatAreNone) {
  const auto of = [](const muster_layout_axis& axis) {
    return refusal(described({9}, {replicate("dp", 2), axis}));
  };
  muster_layout_axis axis = shard("tp", 2, 0, 4);
  EXPECT_EQ(of(axis), "axes[1].split is 4, which is none of MUSTER_SPLIT_CEIL..GIVEN");
  axis = replicate("tp", 2);
  axis.placement = 3;
  EXPECT_EQ(of(axis), "axes[1].placement is 3, which is none of MUSTER_REPLICATE..PARTIAL");
  EXPECT_EQ(of(replicate(nullptr, 0)), "axes[1] has neither ranks nor the name of a dim of the mesh");
  EXPECT_EQ(of(replicate("tp", 0)), "axes[1] takes its ranks from the mesh (tp), but there is no session");
  EXPECT_EQ(of(replicate("tp", -2)), "axis 1 (tp) has -2 ranks; it must have 1 or more");
  EXPECT_EQ(of(shard("tp", 2, 1)), "axis 1 (tp) shards dim 1; the tensor has 1 dims, counted from 0");
  EXPECT_THAT(of(partial("tp", 2, MUSTER_PREMUL_SUM)),
              HasSubstr("axis 1 (tp) is partial by reduction 6 (premul_sum)"));
  axis = shard("tp", 2, 0, MUSTER_SPLIT_ALIGNED);
  EXPECT_THAT(of(axis), HasSubstr("axis 1 (tp) cannot divide dim 0: aligned(0): the grain is 0"));
  axis = shard("tp", 2, 0, MUSTER_SPLIT_GIVEN);
  EXPECT_THAT(of(axis), HasSubstr("0 given lengths for 2 ranks"));
  axis.length_count = 2;
  EXPECT_EQ(of(axis), "axes[1].lengths is NULL, but it has 2 entries");
  axis = shard("tp", 2, 0);
  axis.fused_count = 1;
  EXPECT_EQ(of(axis), "axes[1].fused is NULL, but it has 1 entries");
}

TEST(CLayouts, RefuseAxesOfOneName) {
  EXPECT_THAT(refusal(described({9}, {shard("tp", 2, 0), replicate("dp", 2), shard("tp", 2, 0)})),
              HasSubstr("axes 0 and 2 are both tp; a dim of the mesh can be one axis of a layout"));
  made({9}, {shard(nullptr, 2, 0), shard(nullptr, 2, 0)});
}

using LayoutsOfAMesh = RunningRanks;

// Goal:   a layout has as many ranks as the mesh has along its axes, so no two axes may share a dim.
TEST_F(LayoutsOfAMesh, RefuseADimTwice) {
  mesh = "dp_shard=2,cp=2,tp=1";
  with_ranks(4, [&](Member& member) {
    const auto refused = [&](const char* a, const char* b) {
      const muster_layout_options options = described({8, 4}, {shard(a, 0, 0), replicate(b, 0)});
      auto* layout = reinterpret_cast<muster_layout*>(8);
      EXPECT_EQ(muster_layout_create(member.session, &options, &layout), MUSTER_ERR_BAD_ARGUMENT);
      EXPECT_EQ(layout, nullptr);
      return std::string(muster_last_error());
    };
    EXPECT_THAT(refused("cp", "cp"), HasSubstr("axes 0 and 1 are both cp"));
    EXPECT_THAT(refused("tp", "tp"), HasSubstr("axes 0 and 1 are both tp"));
    EXPECT_THAT(refused("dp_shard_cp", "cp"),
                HasSubstr("axes 0 (dp_shard_cp) and 1 (cp) overlap: these dims"));
    EXPECT_THAT(refused("dp_shard", "world"),
                HasSubstr("axes 0 (dp_shard) and 1 (world) overlap: these dims"));
    const LayoutHandle apart =
        made({8, 4}, {shard("dp_shard", 0, 0), shard("cp", 0, 0), shard("tp", 0, 1)}, member.session);
    std::int32_t ranks = 0;
    EXPECT_EQ(muster_layout_ranks(apart.get(), &ranks), MUSTER_OK);
    EXPECT_EQ(ranks, 4);
    muster_tp_rule rule{};
    rule.pattern = "*";
    rule.style = MUSTER_TP_COLUMN;
    const std::int64_t shape[] = {8, 4};
    muster_layout* layout = nullptr;
    EXPECT_EQ(muster_tp_layout(member.session, &rule, 1, "a", shape, 2, "cp", "cp", &layout),
              MUSTER_ERR_BAD_ARGUMENT);
    EXPECT_THAT(muster_last_error(), HasSubstr("axes 0 and 1 are both cp"));
    EXPECT_EQ(muster_tp_layout(member.session, &rule, 1, "a", shape, 2, "dp_shard_cp", "cp", &layout),
              MUSTER_ERR_BAD_ARGUMENT);
    EXPECT_THAT(muster_last_error(), HasSubstr("overlap"));
    meet_and_leave(member);
  });
}

TEST(CLayouts, RefuseFieldsThatAnAxisDoesNotUse) {
  const std::int64_t one[] = {9};
  const auto of = [](muster_layout_axis axis, auto change) {
    change(axis);
    return refusal(described({9}, {axis}));
  };
  EXPECT_EQ(of(replicate("tp", 2), [](auto& a) { a.dim = 1; }),
            "axes[0].dim is given, but only MUSTER_SHARD uses it; leave it 0");
  EXPECT_THAT(of(partial("tp", 2), [](auto& a) { a.split = MUSTER_SPLIT_BALANCED; }),
              HasSubstr("axes[0].split"));
  EXPECT_THAT(of(replicate("tp", 2), [&](auto& a) { a.fused = one; }), HasSubstr("axes[0].fused"));
  EXPECT_THAT(of(shard("tp", 2, 0), [](auto& a) { a.redop = MUSTER_SUM; }),
              HasSubstr("axes[0].redop is given, but only MUSTER_PARTIAL"));
  EXPECT_THAT(of(shard("tp", 2, 0), [](auto& a) { a.grain = 64; }),
              HasSubstr("axes[0].grain is given, but only MUSTER_SPLIT_ALIGNED"));
  EXPECT_THAT(of(shard("tp", 2, 0), [&](auto& a) { a.lengths = one; }),
              HasSubstr("axes[0].lengths is given, but only MUSTER_SPLIT_GIVEN"));
  EXPECT_THAT(of(shard("tp", 2, 0), [](auto& a) { a.reserved = 1; }), HasSubstr("axes[0].reserved"));
}

TEST(CLayouts, RefuseCallsWithoutWhatTheyNeed) {
  const muster_layout_options options = described({9}, {shard("tp", 2, 0)});
  const LayoutHandle layout = made(options);
  muster_layout* none = nullptr;
  std::int32_t ranks = 0;
  std::int64_t shape[MUSTER_TENSOR_DIMS_MAX];
  std::size_t count = 0;
  EXPECT_EQ(muster_layout_create(nullptr, nullptr, &none), MUSTER_ERR_BAD_ARGUMENT);
  EXPECT_EQ(muster_layout_create(nullptr, &options, nullptr), MUSTER_ERR_BAD_ARGUMENT);
  EXPECT_EQ(muster_layout_ranks(nullptr, &ranks), MUSTER_ERR_BAD_ARGUMENT);
  EXPECT_EQ(muster_layout_ranks(layout.get(), nullptr), MUSTER_ERR_BAD_ARGUMENT);
  EXPECT_EQ(muster_layout_local_shape(nullptr, 0, shape), MUSTER_ERR_BAD_ARGUMENT);
  EXPECT_EQ(muster_layout_local_shape(layout.get(), 0, nullptr), MUSTER_ERR_BAD_ARGUMENT);
  for (const std::int32_t rank : {-1, 2}) {
    EXPECT_EQ(muster_layout_local_shape(layout.get(), rank, shape), MUSTER_ERR_BAD_ARGUMENT);
    EXPECT_EQ(muster_last_error(), "rank " + std::to_string(rank) + " is not in the layout's 0..1");
    EXPECT_EQ(muster_layout_boxes(layout.get(), rank, nullptr, 0, &count), MUSTER_ERR_BAD_ARGUMENT);
  }
  EXPECT_EQ(muster_layout_boxes(layout.get(), 0, nullptr, 1, &count), MUSTER_ERR_BAD_ARGUMENT);
  EXPECT_EQ(muster_layout_boxes(layout.get(), 0, nullptr, 0, nullptr), MUSTER_ERR_BAD_ARGUMENT);
  EXPECT_EQ(muster_layout_destroy(nullptr), MUSTER_OK);
}

}  // namespace
}  // namespace muster::test
