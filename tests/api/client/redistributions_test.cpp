// Plans that carry a tensor from one layout to another, by a real node's ranks.
#include <muster/layouts.h>

#include "tests/api/client/made_layouts.hpp"
#include "tests/api/client/running_ranks.hpp"

#include <algorithm>
#include <string>
#include <utility>

#include <gmock/gmock.h>

namespace muster::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

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

class Redistributions : public RunningRanks {
 protected:
  // Makes the plan; member.error gets the reason of a refusal.
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

// Goal:   case T13: 7 items of 4 ranks, of which the last has one.
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

// Goal:   case T13: a result is reduced and divided at once, evenly or not, by rows, and by columns in
//         pieces.
TEST_F(Redistributions, FromPartialToShardAreOneReduceScatter) {
  with_ranks(4, [&](Member& member) {
    const Numbers lengths = {0, 4, 1, 1};
    muster_layout_axis uneven = shard("tp", 4, 1, MUSTER_SPLIT_GIVEN);
    uneven.lengths = lengths.data();
    uneven.length_count = 4;
    const LayoutHandle from = made({7, 6}, {partial("tp", 4)});
    const Vector source = vector_of(member, 42);
    const Vector target = vector_of(member, 42);
    for (int i = 0; i < 42; ++i) source.data[i] = static_cast<float>(i + 100 * member.rank);
    for (const muster_layout_axis& axis : {shard("tp", 4, 0), shard("tp", 4, 1), uneven}) {
      const LayoutHandle to = made({7, 6}, {axis});
      const Numbers shape = local_shape(to, member.rank, 2);
      muster_plan made_plan = 0;
      ASSERT_EQ(plan(member, from, dense(source, {7, 6}), to, dense(target, shape), &made_plan), MUSTER_OK)
          << member.error;
      carry_out(member, made_plan);
      for (const muster_box& box : pieces(to, member.rank))
        for (std::int64_t i = 0; i < shape[0] * shape[1]; ++i) {
          const std::int64_t element = (box.offset[0] + i / shape[1]) * 6 + box.offset[1] + i % shape[1];
          EXPECT_EQ(target.data[i], static_cast<float>(4 * element + 600)) << i;
        }
      await_all(member);
    }
    // A view without elements has no gaps, whatever its strides are.
    const LayoutHandle columns = made({7, 6}, {shard("tp", 4, 1)});
    const Numbers own = local_shape(columns, member.rank, 2);
    muster_tensor view = dense(target, own);
    if (own[1] == 0) view.stride[0] = 3;
    muster_plan made_plan = 0;
    ASSERT_EQ(plan(member, from, dense(source, {7, 6}), columns, view, &made_plan), MUSTER_OK)
        << member.error;
    carry_out(member, made_plan);
    await_all(member);
    // In pieces, in place is not end to end.
    const LayoutHandle to = made({7, 6}, {shard("tp", 4, 1)});
    expect_refused(member, MUSTER_ERR_BAD_ARGUMENT, from, dense(source, {7, 6}), to,
                   dense(source, local_shape(to, member.rank, 2)),
                   "target begins where source does, but what rank " + std::to_string(member.rank) +
                       " keeps does not lie end to end there; give it memory of its own");
  });
}

// Goal:   ranks that a cut leaves nothing take part, whichever dim is cut and however the addends reduce.
TEST_F(Redistributions, FromPartialToShardLeaveRanksNothingInAnyDim) {
  with_ranks(4, [&](Member& member) {
    const Numbers shape{2, 3, 2};
    const Vector source = vector_of(member, 12);
    const Vector target = vector_of(member, 12);
    for (int i = 0; i < 12; ++i) source.data[i] = static_cast<float>(i + 100 * member.rank);
    for (const muster_redop redop : {MUSTER_SUM, MUSTER_MAX})
      for (const std::int32_t dim : {0, 1, 2}) {
        SCOPED_TRACE(std::to_string(redop) + ", dim " + std::to_string(dim));
        const LayoutHandle from = made(shape, {partial("tp", 4, redop)});
        const LayoutHandle to = made(shape, {shard("tp", 4, dim)});
        const Numbers own = local_shape(to, member.rank, 3);
        std::fill_n(target.data, 12, -1.0f);
        muster_plan made_plan = 0;
        ASSERT_EQ(plan(member, from, dense(source, shape), to, dense(target, own), &made_plan), MUSTER_OK)
            << member.error;
        carry_out(member, made_plan);
        std::int64_t at = 0;
        for (const muster_box& box : pieces(to, member.rank))
          for (std::int64_t i = 0; i < own[0]; ++i)
            for (std::int64_t j = 0; j < own[1]; ++j)
              for (std::int64_t k = 0; k < own[2]; ++k) {
                const std::int64_t element =
                    ((box.offset[0] + i) * 3 + box.offset[1] + j) * 2 + box.offset[2] + k;
                EXPECT_EQ(target.data[at++],
                          static_cast<float>(redop == MUSTER_SUM ? 4 * element + 600 : element + 300));
              }
        EXPECT_EQ(std::count(target.data, target.data + 12, -1.0f), 12 - at);
        await_all(member);
      }
  });
}

// Goal:   likewise where a second axis divides the rows, and where columns become rows of other ranks.
TEST_F(Redistributions, LeaveRanksNothingBesideAnotherAxis) {
  mesh = "dp_shard=2,tp=2";
  with_ranks(4, [&](Member& member) {
    const Vector source = vector_of(member, 8);
    const Vector target = vector_of(member, 8);
    const LayoutHandle whole = made({4, 1}, {shard("dp_shard", 2, 0), partial("tp", 2)});
    const LayoutHandle columns = made({4, 1}, {shard("dp_shard", 2, 0), shard("tp", 2, 1)});
    const LayoutHandle rows = made({4, 1}, {replicate("dp_shard", 2), shard("tp", 2, 0)});
    const int dp = member.rank / 2, tp = member.rank % 2;
    for (int i = 0; i < 2; ++i) source.data[i] = static_cast<float>(10 * (2 * dp + i) + tp);
    muster_plan reduced = 0, moved = 0;
    const Numbers own = local_shape(columns, member.rank, 2);
    EXPECT_EQ(own, (Numbers{2, tp == 0 ? 1 : 0}));
    ASSERT_EQ(plan(member, whole, dense(source, {2, 1}), columns, dense(target, own), &reduced), MUSTER_OK)
        << member.error;
    carry_out(member, reduced);
    for (int i = 0; i < 2 && tp == 0; ++i)
      EXPECT_EQ(target.data[i], static_cast<float>(20 * (2 * dp + i) + 1));
    const Vector last = vector_of(member, 2);
    ASSERT_EQ(plan(member, columns, dense(target, own), rows, dense(last, {2, 1}), &moved), MUSTER_OK)
        << member.error;
    carry_out(member, moved);
    for (int i = 0; i < 2; ++i) EXPECT_EQ(last.data[i], static_cast<float>(20 * (2 * tp + i) + 1));
    await_all(member);
  });
}

// Goal:   several partial axes are one reduction over the mesh's group of their ranks, if it has one.
TEST_F(Redistributions, OfSeveralPartialAxesAreOneOverTheirGroup) {
  mesh = "dp_replicate=2,dp_shard=2,tp=2";
  with_ranks(8, [&](Member& member) {
    const auto layout = [](muster_layout_axis outer, muster_layout_axis middle, muster_layout_axis inner) {
      return made({5, 4}, {outer, middle, inner});
    };
    const LayoutHandle from = layout(partial("dp_replicate", 2), partial("dp_shard", 2), shard("tp", 2, 1));
    const LayoutHandle to = layout(replicate("dp_replicate", 2), shard("dp_shard", 2, 0), shard("tp", 2, 1));
    const LayoutHandle all =
        layout(replicate("dp_replicate", 2), replicate("dp_shard", 2), shard("tp", 2, 1));
    const Vector source = vector_of(member, 10);
    const Vector target = vector_of(member, 10);
    for (int i = 0; i < 10; ++i) source.data[i] = static_cast<float>(i + 100 * member.rank);
    const int sum = 4 * 100 * (member.rank % 2) + 100 * (0 + 2 + 4 + 6);  // of the ranks of dp
    const std::int64_t rows = member.rank / 2 % 2 == 0 ? 3 : 2;
    muster_plan made_plan = 0;
    ASSERT_EQ(plan(member, from, dense(source, {5, 2}), to, dense(target, {rows, 2}), &made_plan), MUSTER_OK)
        << member.error;
    carry_out(member, made_plan);
    for (int i = 0; i < rows * 2; ++i)
      EXPECT_EQ(target.data[i], static_cast<float>(sum + 4 * (i + (rows == 2 ? 6 : 0)))) << i;
    await_all(member);
    ASSERT_EQ(plan(member, from, dense(source, {5, 2}), all, dense(target, {5, 2}), &made_plan), MUSTER_OK)
        << member.error;
    carry_out(member, made_plan);
    for (int i = 0; i < 10; ++i) EXPECT_EQ(target.data[i], static_cast<float>(sum + 4 * i)) << i;
    await_all(member);
    // dp_replicate and tp are not neighbours, so no dim is both.
    const std::int32_t first = member.rank / 2 % 2 * 2;
    const Vector whole = vector_of(member, 40);
    muster_tensor other = dense(whole, {5, 4});
    other.offset_bytes = 80;
    muster_plan none = 0;
    EXPECT_EQ(plan(member, layout(partial("dp_replicate", 2), replicate("dp_shard", 2), partial("tp", 2)),
                   dense(whole, {5, 4}),
                   layout(replicate("dp_replicate", 2), replicate("dp_shard", 2), replicate("tp", 2)), other,
                   &none),
              MUSTER_ERR_UNSUPPORTED);
    EXPECT_THAT(
        member.error,
        HasSubstr("this is one all_reduce along axis 2 (tp), axis 0 (dp_replicate), but no dim of the "
                  "mesh has ranks " +
                  std::to_string(first) + ", " + std::to_string(first + 1) + ", " +
                  std::to_string(first + 4) + ", " + std::to_string(first + 5) + " as a group"));
    await_all(member);
  });
}

// Goal: a rank that gives and gets nothing takes part, and so do all if nothing moves.
TEST_F(Redistributions, ThatMoveNothingArePlansToo) {
  with_ranks(3, [&](Member& member) {
    // The only row moves from rank 0 to rank 1. Rank 2 has nothing to do.
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
    // The engine alone can find these errors.
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
    refused(made({8}, {shard("dp", 2, 0), partial("tp", 2, MUSTER_MAX)}), {4},
            made({8}, {replicate("all", 4)}), {8},
            "an all_reduce by max along axis 1 (tp), then a redistribution from the layout that is "
            "replicated there");
    refused(made({8}, {partial("dp", 2), partial("tp", 2, MUSTER_MAX)}), {8}, made({8}, {shard("all", 4, 0)}),
            {2},
            "an all_reduce by max along axis 1 (tp), then an all_reduce by sum along axis 0 (dp), then a "
            "redistribution from the layout that is replicated there");
    refused(made({8}, {replicate("tp", 4)}), {8}, made({8}, {partial("tp", 4)}), {8},
            "a product with 0.25 (muster_axpby)");
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

// Goal:   a limit that one rank alone would exceed is an error at all ranks, or they would wait for it.
TEST_F(Redistributions, RefuseToEachRankWhatIsTooMuchForOne) {
  with_ranks(3, [&](Member& member) {
    // Rank 0 gets 400 items from itself and 400 from rank 1, one by one. Rank 2 has nothing to do.
    const Numbers twos(400, 2);
    muster_layout_axis axis = shard("tp", 3, 0);
    axis.fused = twos.data();
    axis.fused_count = 400;
    const Numbers lengths = {800, 0, 0};
    muster_layout_axis first = shard("tp", 3, 0, MUSTER_SPLIT_GIVEN);
    first.lengths = lengths.data();
    first.length_count = 3;
    const Vector memory = vector_of(member, 40000);
    muster_tensor target = dense(memory, {member.rank == 0 ? 800 : 0});
    target.offset_bytes = 4000;
    const std::string remedy = "; redistribute the tensor in parts";
    expect_refused(
        member, MUSTER_ERR_NO_RESOURCE, made({800}, {axis}), dense(memory, {member.rank == 2 ? 0 : 400}),
        made({800}, {first}), target,
        "rank 0 would have more than 680 faces, sends and receives together, of which one exchange "
        "has no more" +
            remedy);
    // Rank 1 has all rows of a column, each a piece.
    const LayoutHandle columns = made({4097, 3}, {shard("tp", 3, 1)});
    target = dense(memory, {4097, 1});
    target.offset_bytes = 60000;
    expect_refused(member, MUSTER_ERR_NO_RESOURCE, made({4097, 3}, {partial("tp", 3)}),
                   dense(memory, {4097, 3}), columns, target,
                   "what rank 0 and those before it keep of a reduction are more than 4096 pieces, of which "
                   "one operation has no more" +
                       remedy);
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
}  // namespace muster::test
