// Layouts of the C API, and plans that carry a tensor from one layout to another.
#include <muster/layouts.h>

#include "tests/api/client/running_ranks.hpp"

#include <algorithm>
#include <cstring>
#include <memory>
#include <optional>
#include <vector>

#include <gmock/gmock.h>

namespace {

using muster::test::Member;
using muster::test::Vector;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

using Numbers = std::vector<std::int64_t>;
using LayoutHandle = std::unique_ptr<muster_layout, muster_status_t (*)(muster_layout*)>;

muster_layout_axis replicate(const char* name, std::int32_t ranks) {
  muster_layout_axis axis = MUSTER_LAYOUT_AXIS_INIT;
  axis.name = name;
  axis.ranks = ranks;
  return axis;
}

muster_layout_axis shard(const char* name, std::int32_t ranks, std::int32_t dim,
                         muster_split split = MUSTER_SPLIT_CEIL) {
  muster_layout_axis axis = replicate(name, ranks);
  axis.placement = MUSTER_SHARD;
  axis.dim = dim;
  axis.split = split;
  return axis;
}

muster_layout_axis partial(const char* name, std::int32_t ranks, muster_redop redop = MUSTER_SUM) {
  muster_layout_axis axis = replicate(name, ranks);
  axis.placement = MUSTER_PARTIAL;
  axis.redop = redop;
  return axis;
}

muster_layout_options described(const Numbers& shape, const std::vector<muster_layout_axis>& axes) {
  muster_layout_options options = MUSTER_LAYOUT_OPTIONS_INIT;
  options.dims = static_cast<std::int32_t>(shape.size());
  std::copy(shape.begin(), shape.end(), options.shape);
  options.axis_count = static_cast<std::uint32_t>(axes.size());
  std::copy(axes.begin(), axes.end(), options.axes);
  return options;
}

LayoutHandle made(const muster_layout_options& options, muster_session* session = nullptr) {
  muster_layout* layout = nullptr;
  EXPECT_EQ(muster_layout_create(session, &options, &layout), MUSTER_OK) << muster_last_error();
  return LayoutHandle(layout, &muster_layout_destroy);
}
LayoutHandle made(const Numbers& shape, const std::vector<muster_layout_axis>& axes,
                  muster_session* session = nullptr) {
  return made(described(shape, axes), session);
}

Numbers local_shape(const LayoutHandle& layout, std::int32_t rank, std::size_t dims) {
  Numbers shape(MUSTER_TENSOR_DIMS_MAX, -1);
  EXPECT_EQ(muster_layout_local_shape(layout.get(), rank, shape.data()), MUSTER_OK) << muster_last_error();
  EXPECT_TRUE(std::all_of(shape.begin() + static_cast<std::ptrdiff_t>(dims), shape.end(),
                          [](std::int64_t length) { return length == 0; }));
  shape.resize(dims);
  return shape;
}

std::vector<muster_box> pieces(const LayoutHandle& layout, std::int32_t rank) {
  std::size_t count = 0;
  EXPECT_EQ(muster_layout_boxes(layout.get(), rank, nullptr, 0, &count), MUSTER_OK) << muster_last_error();
  std::vector<muster_box> found(count);
  EXPECT_EQ(muster_layout_boxes(layout.get(), rank, found.data(), count, &count), MUSTER_OK);
  EXPECT_EQ(count, found.size());
  return found;
}

std::string refusal(const muster_layout_options& options) {
  auto* layout = reinterpret_cast<muster_layout*>(8);
  EXPECT_EQ(muster_layout_create(nullptr, &options, &layout), MUSTER_ERR_BAD_ARGUMENT);
  EXPECT_EQ(layout, nullptr);
  return muster_last_error();
}

// ---- layouts -------------------------------------------------------------------------------------

// Case X2, with the numbers of layouts.h.
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

// Case T11.
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

// ---- plans ---------------------------------------------------------------------------------------

// A view of the first elements of a vector, without gaps.
muster_tensor dense(const Vector& v, const Numbers& shape) {
  muster_tensor view{v.buffer, 0, MUSTER_F32, static_cast<std::int32_t>(shape.size()), {}, {}};
  std::int64_t stride = 1;
  for (std::size_t dim = shape.size(); dim-- > 0;) {
    view.size[dim] = shape[dim];
    view.stride[dim] = stride;
    stride *= shape[dim];
  }
  return view;
}

class Redistributions : public muster::test::RunningRanks {
 protected:
  // What is refused, in member.error.
  static muster_status_t plan(Member& member, const LayoutHandle& from, const muster_tensor& source,
                              const LayoutHandle& to, const muster_tensor& target, muster_plan* plan) {
    const muster_status_t status = muster_plan_redistribution(member.session, member.group, from.get(),
                                                              &source, to.get(), &target, plan);
    member.error = muster_last_error();
    return status;
  }
  static void expect_refused(Member& member, muster_status_t status, const LayoutHandle& from,
                             const muster_tensor& source, const LayoutHandle& to, const muster_tensor& target,
                             const std::string& text) {
    muster_plan made = 7;
    EXPECT_EQ(plan(member, from, source, to, target, &made), status) << member.error;
    EXPECT_EQ(made, 0u);
    EXPECT_EQ(member.error, text);
  }
  // Runs the plan, and then starts it.
  static void carry_out(Member& member, muster_plan plan) {
    EXPECT_EQ(muster_plan_run(member.session, plan, 0), MUSTER_OK) << muster_last_error();
    muster_submit submit = MUSTER_SUBMIT_INIT;
    muster_point point = 0;
    ASSERT_EQ(muster_plan_start(member.session, plan, &submit, &point), MUSTER_OK) << muster_last_error();
    EXPECT_EQ(muster_point_wait(member.session, point, -1), MUSTER_OK) << muster_last_error();
  }
};

TEST_F(Redistributions, TakeTheSizesOfAxesFromTheMesh) {
  mesh = "dp_shard=2,cp=1,tp=2";
  with_ranks(4, [&](Member& member) {
    const LayoutHandle layout = made({9}, {shard("dp_shard_cp", 0, 0), shard("tp", 0, 0)}, member.session);
    std::int32_t ranks = 0;
    EXPECT_EQ(muster_layout_ranks(layout.get(), &ranks), MUSTER_OK);
    EXPECT_EQ(ranks, 4);
    EXPECT_EQ(local_shape(layout, 0, 1), (Numbers{3}));
    EXPECT_EQ(local_shape(layout, 3, 1), (Numbers{2}));
    const muster_layout_options wrong = described({9}, {shard("rows", 0, 0)});
    muster_layout* none = nullptr;
    EXPECT_EQ(muster_layout_create(member.session, &wrong, &none), MUSTER_ERR_NOT_FOUND);
    EXPECT_THAT(muster_last_error(), AllOf(HasSubstr("axes[0].name: "), HasSubstr("rows"), HasSubstr("tp")));
  });
}

// Case T13: 7 items of 4 ranks, of which the last has one.
TEST_F(Redistributions, FromPartialToReplicateAreOneAllReduce) {
  with_ranks(4, [&](Member& member) {
    const LayoutHandle from = made({7}, {partial("tp", 4)});
    const LayoutHandle to = made({7}, {replicate("tp", 4)});
    const Vector source = vector_of(member, 7);
    const Vector target = vector_of(member, 7);
    for (int i = 0; i < 7; ++i) source.data[i] = static_cast<float>(i + 10 * member.rank);
    muster_plan made_plan = 0;
    ASSERT_EQ(plan(member, from, dense(source, {7}), to, dense(target, {7}), &made_plan), MUSTER_OK)
        << member.error;
    carry_out(member, made_plan);
    for (int i = 0; i < 7; ++i) EXPECT_EQ(target.data[i], static_cast<float>(4 * i + 60));
    await_all(member);
  });
}

// Goal: a rank that gives and gets nothing takes part, and so do all if nothing moves.
TEST_F(Redistributions, ThatMoveNothingArePlansToo) {
  with_ranks(3, [&](Member& member) {
    // Of one row only the first two ranks have something to do.
    const Numbers second = {0, 1, 0};
    muster_layout_axis given = shard("tp", 3, 0, MUSTER_SPLIT_GIVEN);
    given.lengths = second.data();
    given.length_count = 3;
    const LayoutHandle first = made({1, 4}, {shard("tp", 3, 0)});
    const LayoutHandle other = made({1, 4}, {given});
    const Vector source = vector_of(member, 4);
    const Vector target = vector_of(member, 4);
    std::fill_n(source.data, 4, static_cast<float>(member.rank + 1));
    const std::int64_t gives = member.rank == 0 ? 1 : 0;
    const std::int64_t gets = member.rank == 1 ? 1 : 0;
    muster_plan one = 0;
    ASSERT_EQ(plan(member, first, dense(source, {gives, 4}), other, dense(target, {gets, 4}), &one),
              MUSTER_OK)
        << member.error;
    carry_out(member, one);
    EXPECT_EQ(target.data[3], member.rank == 1 ? 1.0f : 0.0f);

    // In place, where nothing changes: no face at all.
    const LayoutHandle whole = made({4}, {replicate("tp", 3)});
    muster_plan none = 0;
    ASSERT_EQ(plan(member, whole, dense(source, {4}), whole, dense(source, {4}), &none), MUSTER_OK)
        << member.error;
    carry_out(member, none);
    EXPECT_EQ(source.data[0], static_cast<float>(member.rank + 1));

    // A scalar, into other memory.
    const LayoutHandle scalar = made(Numbers{}, {replicate("tp", 3)});
    muster_plan copied = 0;
    ASSERT_EQ(plan(member, scalar, dense(source, {}), scalar, dense(target, {}), &copied), MUSTER_OK)
        << member.error;
    carry_out(member, copied);
    EXPECT_EQ(target.data[0], static_cast<float>(member.rank + 1));
    await_all(member);
  });
}

// Goal: shards that lie at their places in the whole tensor are gathered there.
TEST_F(Redistributions, GatherShardsInPlace) {
  with_ranks(3, [&](Member& member) {
    const LayoutHandle shards = made({7, 2}, {shard("dp_shard", 3, 0)});
    const LayoutHandle whole = made({7, 2}, {replicate("dp_shard", 3)});
    const Vector memory = vector_of(member, 14);
    const muster_tensor target = dense(memory, {7, 2});
    muster_tensor source = target;
    const muster_box mine = pieces(shards, member.rank).at(0);
    source.size[0] = mine.length[0];
    source.offset_bytes = static_cast<std::uint64_t>(mine.offset[0]) * 2 * sizeof(float);
    for (std::int64_t i = 2 * mine.offset[0]; i < 2 * (mine.offset[0] + mine.length[0]); ++i)
      memory.data[i] = static_cast<float>(i + 1);
    muster_plan gather = 0;
    ASSERT_EQ(plan(member, shards, source, whole, target, &gather), MUSTER_OK) << member.error;
    carry_out(member, gather);
    for (int i = 0; i < 14; ++i) EXPECT_EQ(memory.data[i], static_cast<float>(i + 1));
    await_all(member);
  });
}

TEST_F(Redistributions, RefuseATransposeInPlace) {
  with_ranks(2, [&](Member& member) {
    const LayoutHandle whole = made({2, 2}, {replicate("tp", 2)});
    const Vector memory = vector_of(member, 4);
    const muster_tensor rows = dense(memory, {2, 2});
    muster_tensor columns = rows;
    std::swap(columns.stride[0], columns.stride[1]);
    muster_plan none = 7;
    EXPECT_EQ(plan(member, whole, rows, whole, columns, &none), MUSTER_ERR_BAD_ARGUMENT);
    EXPECT_THAT(member.error, HasSubstr("overlap"));
    EXPECT_EQ(none, 0u);
  });
}

TEST_F(Redistributions, RefuseViewsThatAreNotTheRanksArray) {
  with_ranks(2, [&](Member& member) {
    const LayoutHandle rows = made({5, 4}, {shard("tp", 2, 0)});
    const LayoutHandle columns = made({5, 4}, {shard("tp", 2, 1)});
    const Vector memory = vector_of(member, 64);
    const std::int64_t mine = member.rank == 0 ? 3 : 2;
    const muster_tensor source = dense(memory, {mine, 4});
    muster_tensor target = dense(memory, {5, 2});
    target.offset_bytes = 128;
    const auto refused = [&](const muster_tensor& from, const muster_tensor& to, const std::string& text) {
      expect_refused(member, MUSTER_ERR_BAD_ARGUMENT, rows, from, columns, to, text);
    };
    const std::string rank = std::to_string(member.rank);
    refused(
        dense(memory, {4, 4}), target,
        "source has shape [4, 4], but in its layout rank " + rank + " has [" + std::to_string(mine) + ", 4]");
    refused(source, dense(memory, {10}),
            "target has shape [10], but in its layout rank " + rank + " has [5, 2]");
    muster_tensor wrong = source;
    wrong.dtype = 77;
    refused(wrong, target, "source has dtype 77, which does not exist");
    wrong.dtype = MUSTER_I32;
    refused(wrong, target, "source has dtype 5 and target dtype 1; a redistribution converts nothing");
    wrong = target;
    wrong.stride[0] = -2;
    refused(source, wrong, "target has stride -2 in dim 0; it must be 1 or more");
    wrong.stride[0] = INT64_MAX;
    refused(source, wrong, "target spans more than 2^63 bytes: stride 9223372036854775807 in dim 0");
    wrong.dims = -1;
    refused(source, wrong,
            "target has -1 dims; 0 to " + std::to_string(MUSTER_TENSOR_DIMS_MAX) + " are possible");
    // What only the engine knows.
    wrong = target;
    wrong.offset_bytes = 4096;
    muster_plan none = 7;
    EXPECT_EQ(plan(member, rows, source, columns, wrong, &none), MUSTER_ERR_BAD_ARGUMENT);
    EXPECT_EQ(none, 0u);
    EXPECT_EQ(plan(member, rows, source, columns, source, &none), MUSTER_ERR_BAD_ARGUMENT);
  });
}

TEST_F(Redistributions, RefuseLayoutsThatDoNotGoTogether) {
  with_ranks(2, [&](Member& member) {
    const LayoutHandle rows = made({4, 4}, {shard("tp", 2, 0)});
    const Vector memory = vector_of(member, 64);
    const muster_tensor view = dense(memory, {2, 4});
    const auto refused = [&](const LayoutHandle& from, const LayoutHandle& to, const std::string& text) {
      expect_refused(member, MUSTER_ERR_BAD_ARGUMENT, from, view, to, view, text);
    };
    refused(rows, made({4, 4}, {shard("tp", 3, 0)}), "layout to has 3 ranks, but group world has 2 members");
    refused(made({4, 4}, std::vector<muster_layout_axis>{}), rows,
            "layout from has 1 ranks, but group world has 2 members");
    refused(rows, made({4, 5}, {shard("tp", 2, 0)}),
            "one layout is of a tensor of shape [4, 4], the other of one of shape [4, 5]");
    refused(rows, made({4, 4}, {partial("tp", 2)}),
            "axis 0 (tp) is sharded and would become partial; make it replicate first");
    muster_plan none = 7;
    EXPECT_EQ(
        muster_plan_redistribution(member.session, member.group, nullptr, &view, rows.get(), &view, &none),
        MUSTER_ERR_BAD_ARGUMENT);
    EXPECT_EQ(none, 0u);
    EXPECT_EQ(muster_plan_redistribution(nullptr, member.group, rows.get(), &view, rows.get(), &view, &none),
              MUSTER_ERR_BAD_ARGUMENT);
    EXPECT_EQ(
        muster_plan_redistribution(member.session, 0x1234567, rows.get(), &view, rows.get(), &view, &none),
        MUSTER_ERR_STALE);
  });
}

TEST_F(Redistributions, NameTheOperationsThatOnePlanCannotBe) {
  with_ranks(4, [&](Member& member) {
    const Vector memory = vector_of(member, 512);
    const auto refused = [&](const LayoutHandle& from, const Numbers& source, const LayoutHandle& to,
                             const Numbers& target, const std::string& text) {
      expect_refused(member, MUSTER_ERR_UNSUPPORTED, from, dense(memory, source), to, dense(memory, target),
                     "one plan cannot do this, but several can: " + text);
    };
    refused(made({8}, {partial("tp", 4, MUSTER_MAX)}), {8}, made({8}, {shard("tp", 4, 0)}), {2},
            "an all_reduce by max along axis 0 (tp), then a redistribution from the layout that is "
            "replicated there");
    refused(made({8}, {replicate("tp", 4)}), {8}, made({8}, {partial("tp", 4)}), {8},
            "a product with 0.25 (muster_axpby)");
    refused(made({8}, {replicate("dp", 2), partial("tp", 2)}), {8}, made({8}, {replicate("all", 4)}), {8},
            "an all_reduce by sum along axis 1 (tp)");
    refused(made({8}, {shard("dp", 2, 0), replicate("tp", 2)}), {4},
            made({8}, {replicate("dp", 2), partial("tp", 2)}), {8},
            "a redistribution to the layout that is not partial, then a product with 0.5 (muster_axpby)");
    muster_tensor apart = dense(memory, {2, 2});
    apart.stride[0] = 3;
    expect_refused(
        member, MUSTER_ERR_UNSUPPORTED, made({2, 2}, {partial("tp", 4)}), dense(memory, {2, 2}),
        made({2, 2}, {replicate("tp", 4)}), apart,
        "this is an all_reduce, which takes arrays without gaps; target has strides [3, 1]: copy it "
        "(muster_copy), or plan views without gaps");
  });
}

TEST_F(Redistributions, RefuseMoreFacesThanAnExchangeHas) {
  with_ranks(2, [&](Member& member) {
    const Numbers twos(400, 2);
    muster_layout_axis axis = shard("tp", 2, 0);
    axis.fused = twos.data();
    axis.fused_count = 400;
    const Vector memory = vector_of(member, 2000);
    muster_tensor target = dense(memory, {800});
    target.offset_bytes = 4000;
    muster_plan none = 7;
    EXPECT_EQ(plan(member, made({800}, {axis}), dense(memory, {400}), made({800}, {replicate("tp", 2)}),
                   target, &none),
              MUSTER_ERR_NO_RESOURCE);
    EXPECT_EQ(none, 0u);
    EXPECT_THAT(member.error,
                AllOf(HasSubstr("rank " + std::to_string(member.rank) +
                                " would have 800 sends and 800 receives; one exchange has at most "),
                      HasSubstr(" faces at a member")));
  });
}

// Goal: ranks that mean different layouts hear of it before a byte moves.
TEST_F(Redistributions, BetweenOtherLayoutsAtEachRankAreAMismatch) {
  with_ranks(2, [&](Member& member) {
    const LayoutHandle whole = made({6}, {replicate("tp", 2)});
    const Numbers lengths = {2, 4};
    muster_layout_axis uneven = shard("tp", 2, 0, MUSTER_SPLIT_GIVEN);
    uneven.lengths = lengths.data();
    uneven.length_count = 2;
    const Vector source = vector_of(member, 6);
    const Vector target = vector_of(member, 6);
    muster_plan made_plan = 0;
    const bool second = member.rank == 1;
    ASSERT_EQ(plan(member, made({6}, {second ? uneven : shard("tp", 2, 0)}), dense(source, {second ? 4 : 3}),
                   whole, dense(target, {6}), &made_plan),
              MUSTER_OK)
        << member.error;
    EXPECT_EQ(muster_plan_run(member.session, made_plan, 0), MUSTER_ERR_MISMATCH);
    await_all(member);
  });
}

}  // namespace
