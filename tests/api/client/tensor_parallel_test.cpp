// Tensor parallelism through the C API, with units: gradients summed over tp, figures of all gradients, and
// samples.
#include <muster/tensor_parallel.h>
#include <muster/units.h>

#include "tests/api/client/running_ranks.hpp"
#include "tests/api/client/small_model.hpp"

#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include <gmock/gmock.h>
#include <muster/kernels.h>

namespace {

using muster::test::Member;
using muster::test::ok;
using muster::test::SmallModel;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

using TensorParallel = muster::test::RunningRanks;

// Figures of all gradients of a model.
class Figures {
 public:
  explicit Figures(const SmallModel& model) : model_(model) {
    void* address = nullptr;
    ok(muster_buffer_alloc(model.session(), 2 * sizeof(double), &buffer_, &address));
    numbers_ = static_cast<double*>(address);
  }
  double square_sum() const {
    const muster_tensor out = muster_view1(buffer_, 0, MUSTER_F64, 1);
    muster_point done = MUSTER_POINT_NONE;
    ok(muster_units_square_sum(model_.units, &out, &done));
    ok(muster_point_wait(model_.session(), done, -1));
    return numbers_[0];
  }
  // Zeros, and elements.
  std::array<double, 2> zero_count() const {
    const muster_tensor out = muster_view1(buffer_, 0, MUSTER_F64, 2);
    muster_point done = MUSTER_POINT_NONE;
    ok(muster_units_zero_count(model_.units, &out, &done));
    ok(muster_point_wait(model_.session(), done, -1));
    return {numbers_[0], numbers_[1]};
  }

 private:
  const SmallModel& model_;
  muster_buffer buffer_ = 0;
  double* numbers_ = nullptr;
};

std::int32_t coordinate(const Member& member, const char* dim) {
  std::int32_t at = 0;
  ok(muster_mesh_coords(member.session, dim, &at, nullptr));
  return at;
}

// Goal:   case T3: halves of a sequence give a norm gradients of 3 and 5, which are 8 on both ranks. Without
//         sequence parallelism both have 8, and it stays.
TEST_F(TensorParallel, SumsGradientsOfWhatSeesItsPartOfTheSequence) {
  mesh = "dp_shard=2,tp=2";
  with_ranks(4, [&](Member& member) {
    const int tp = member.rank % 2;
    {
      SmallModel model(member, {.norm_flags = MUSTER_PARAMETER_SUMMED_OVER_TP});
      for (int step = 0; step < 2; ++step) {
        model.step({1, 2, tp == 0 ? 3.0F : 5.0F});
        model.expect(SmallModel::kNorm, MUSTER_UNIT_GRADIENT_SHARD, 8);
        model.expect(SmallModel::kColumn, MUSTER_UNIT_GRADIENT_SHARD, 1);
      }
    }
    SmallModel model(member);
    model.step({1, 2, 8});
    model.expect(SmallModel::kNorm, MUSTER_UNIT_GRADIENT_SHARD, 8);
    meet_and_leave(member);
  });
}

struct Shape {
  int world;
  const char* mesh;
};

// Goal:   each element of each parameter counts once, whatever dims cut it and however many replicas there
//         are.
TEST_F(TensorParallel, CountsEachGradientOnce) {
  for (const Shape& shape :
       {Shape{1, "dp_shard=1"}, Shape{2, "tp=2,dp_shard=1"}, Shape{8, "dp_replicate=2,dp_shard=2,tp=2"},
        Shape{4, "dp_shard=2,cp=2"}, Shape{3, "dp_replicate=3,dp_shard=1"}, Shape{6, "dp_shard=3,tp=2"}}) {
    mesh = shape.mesh;
    with_ranks(shape.world, [&](Member& member) {
      SmallModel model(member);
      const Figures figures(model);
      for (int step = 1; step < 3; ++step) {
        const auto scale = static_cast<float>(step);
        model.step({scale, 2 * scale, 3 * scale});
        EXPECT_EQ(figures.square_sum(), (12 + 12 * 4 + 3 * 9) * step * step) << shape.mesh;
        EXPECT_THAT(figures.zero_count(), ElementsAre(0, 27)) << shape.mesh;
        model.step({0, scale, 0});
        EXPECT_THAT(figures.zero_count(), ElementsAre(15, 27)) << shape.mesh;
        EXPECT_EQ(figures.square_sum(), 12 * step * step) << shape.mesh;
      }
      meet_and_leave(member);
    });
  }
}

// Goal:   case T6. A parameter that tp cuts counts on each rank; any other counts on tp's first rank alone.
// Method: the column weight has 6 elements of 1 at tp 0, and 6 of 2 at tp 1: 6 and 24. The row weight has 6
//         of 0 and 6 of 1: 6. The norm has 3 of 4 at both: 48, once. In all 84, of which 6 are zeros of 27.
TEST_F(TensorParallel, NormsAndCountsKnowWhatTpCuts) {
  for (const Shape& shape :
       {Shape{2, "tp=2,dp_shard=1"}, Shape{4, "dp_shard=2,tp=2"}, Shape{6, "dp_replicate=3,dp_shard=1,tp=2"},
        Shape{8, "pp=2,dp_replicate=2,dp_shard=1,tp=2"}}) {
    mesh = shape.mesh;
    with_ranks(shape.world, [&](Member& member) {
      SmallModel model(member);
      const Figures figures(model);
      const auto tp = static_cast<float>(coordinate(member, "tp"));
      const double stages = member.world == 8 ? 2 : 1;  // each has parameters of its own
      model.step({1 + tp, tp, 4});
      EXPECT_EQ(figures.square_sum(), 84 * stages) << shape.mesh;
      EXPECT_THAT(figures.zero_count(), ElementsAre(6 * stages, 27 * stages)) << shape.mesh;
      meet_and_leave(member);
    });
  }
}

// Goal:   all ranks notice a value that is not finite at one rank alone, wherever that rank is in tp and dp.
//         The next step is clean.
TEST_F(TensorParallel, NormsAreTheCheckForOverflow) {
  mesh = "dp_replicate=2,dp_shard=1,tp=2";
  with_ranks(4, [&](Member& member) {
    SmallModel model(member);
    const Figures figures(model);
    constexpr float kInfinity = std::numeric_limits<float>::infinity();
    for (int bad = 0; bad < 4; ++bad)
      for (const float value : {kInfinity, -kInfinity, std::nanf("")}) {
        model.step({member.rank == bad ? value : 1, 1, 1});
        const double sum = figures.square_sum();
        EXPECT_EQ(std::isnan(sum), std::isnan(value)) << "of " << value << " at rank " << bad;
        EXPECT_FALSE(std::isfinite(sum)) << "of " << value << " at rank " << bad;
        EXPECT_THAT(figures.zero_count(), ElementsAre(0, 27));
        model.step({1, 1, member.rank == bad ? value : 1});  // what both tp ranks have, and one counts
        EXPECT_FALSE(std::isfinite(figures.square_sum())) << "of " << value << " at rank " << bad;
        model.step({1, 1, 1});
        EXPECT_EQ(figures.square_sum(), 27);
      }
    meet_and_leave(member);
  });
}

// Goal:   squares of large gradients are beyond f32, and their sum is not infinite.
TEST_F(TensorParallel, NormsOfFiniteGradientsDoNotOverflow) {
  mesh = "tp=2,dp_shard=1";
  with_ranks(2, [&](Member& member) {
    SmallModel model(member);
    constexpr float kLargest = std::numeric_limits<float>::max();
    model.step({kLargest, -kLargest, kLargest});
    const double square = static_cast<double>(kLargest) * static_cast<double>(kLargest);
    EXPECT_DOUBLE_EQ(Figures(model).square_sum(), 27 * square);
    meet_and_leave(member);
  });
}

TEST_F(TensorParallel, RefusesFiguresThatDoNotFit) {
  with_ranks(1, [&](Member& member) {
    SmallModel model(member);
    muster_buffer buffer = 0;
    ok(muster_buffer_alloc(member.session, 4 * sizeof(double), &buffer, nullptr));
    muster_point done = MUSTER_POINT_NONE;
    const muster_tensor one = muster_view1(buffer, 0, MUSTER_F64, 1);
    muster_tensor two = muster_view1(buffer, 0, MUSTER_F64, 2);
    EXPECT_EQ(muster_units_zero_count(model.units, &two, &done), MUSTER_ERR_STATE) << "before the first step";
    model.step({1, 1, 1});
    EXPECT_EQ(muster_units_square_sum(model.units, &two, &done), MUSTER_ERR_BAD_ARGUMENT);
    EXPECT_THAT(muster_last_error(), HasSubstr("out must be F64 [1]"));
    EXPECT_EQ(muster_units_zero_count(model.units, &one, &done), MUSTER_ERR_BAD_ARGUMENT);
    EXPECT_THAT(muster_last_error(), HasSubstr("out must be F64 [2]"));
    two.stride[0] = 2;
    EXPECT_EQ(muster_units_zero_count(model.units, &two, &done), MUSTER_ERR_BAD_ARGUMENT);
    EXPECT_EQ(muster_units_zero_count(model.units, nullptr, &done), MUSTER_ERR_BAD_ARGUMENT);
    EXPECT_EQ(muster_units_zero_count(model.units, &one, nullptr), MUSTER_ERR_BAD_ARGUMENT);
    model.begin();
    two.stride[0] = 1;
    EXPECT_EQ(muster_units_zero_count(model.units, &two, &done), MUSTER_ERR_STATE) << "in a step";
  });
}

// Goal:   case T7. A step consumes the samples of its dp ranks, and those along tp, cp and pp add none.
// Method: micro-batch x accumulation x size of "dp"; a schedule over 1600 samples ends at the step in which
//         that many are consumed. A mesh of tp and pp alone has a dp of 1.
TEST_F(TensorParallel, CountsSamplesByDpAlone) {
  struct Case {
    int world;
    const char* mesh;
    int micro_batch, accumulation, samples, steps, ranks_of_a_batch;
  };
  for (const Case& each :
       {Case{8, "tp=4,dp_shard=2", 4, 2, 16, 100, 4}, Case{2, "tp=2,dp_shard=1", 4, 1, 4, 400, 2},
        Case{4, "pp=2,dp_shard=1,tp=2", 4, 2, 8, 200, 4}, Case{6, "dp_shard=2,cp=3", 4, 2, 16, 100, 3},
        Case{1, "dp_shard=1", 4, 1, 4, 400, 1}}) {
    mesh = each.mesh;
    with_ranks(each.world, [&](Member& member) {
      std::int32_t index = 0;
      std::int32_t size = 0;
      ok(muster_mesh_coords(member.session, "dp", &index, &size));
      const int samples = each.micro_batch * each.accumulation * size;
      EXPECT_EQ(samples, each.samples) << each.mesh;
      EXPECT_EQ(1600 / samples, each.steps) << each.mesh;
      EXPECT_EQ(index, member.rank / each.ranks_of_a_batch) << each.mesh;
      meet_and_leave(member);
    });
  }
}

TEST_F(TensorParallel, RefusesWhatItCannotCut) {
  with_ranks(1, [&](Member& member) {
    muster_layout* layout = nullptr;
    const std::int64_t shape[] = {4, 4, 4};
    EXPECT_EQ(muster_tp_layout(member.session, nullptr, 0, "a.attention.wq.weight", shape, 3, nullptr, "tp",
                               &layout),
              MUSTER_ERR_BAD_ARGUMENT);
    EXPECT_THAT(muster_last_error(), HasSubstr("parameter \"a.attention.wq.weight\": rule"));
    EXPECT_EQ(muster_tp_layout(member.session, nullptr, 0, "x", shape, 2, nullptr, "tpp", &layout),
              MUSTER_ERR_NOT_FOUND);
    muster_tp_style style = -1;
    std::size_t rule = 0;
    ok(muster_tp_style_of(nullptr, 0, "x", &style, &rule));
    EXPECT_EQ(style, MUSTER_TP_REPLICATE);
    EXPECT_EQ(rule, SIZE_MAX);
    const muster_tp_rule own{"x*", MUSTER_TP_ROW, MUSTER_SPLIT_CEIL, 0, nullptr, 0, 0};
    ok(muster_tp_style_of(&own, 1, "xy", &style, &rule));
    EXPECT_EQ(style, MUSTER_TP_ROW);
    EXPECT_EQ(rule, 0U);
    ok(muster_tp_style_of(&own, 1, "y", &style, &rule));
    EXPECT_EQ(rule, SIZE_MAX);
    const muster_tp_rule unknown{"x*", 9, MUSTER_SPLIT_CEIL, 0, nullptr, 0, 0};
    EXPECT_EQ(muster_tp_style_of(&unknown, 1, "xy", &style, &rule), MUSTER_ERR_BAD_ARGUMENT);
    EXPECT_THAT(muster_last_error(), HasSubstr("rules[0].style is 9"));
    muster_op op = -1;
    ok(muster_tp_collective(MUSTER_TP_COLUMN, MUSTER_TP_INPUT_GRADIENT, 0, &op));
    EXPECT_EQ(op, MUSTER_ALL_REDUCE);
    EXPECT_EQ(muster_tp_collective(9, 0, 0, &op), MUSTER_ERR_BAD_ARGUMENT);
    EXPECT_EQ(muster_tp_collective(0, 9, 0, &op), MUSTER_ERR_BAD_ARGUMENT);
  });
}

}  // namespace
