// Tensor parallelism through the C API, with units: gradients summed over tp, and the norm of all gradients.
#include <muster/tensor_parallel.h>
#include <muster/units.h>

#include "tests/api/client/running_ranks.hpp"

#include <algorithm>
#include <cstdint>
#include <vector>

#include <gmock/gmock.h>

namespace {

using muster::test::Member;
using ::testing::HasSubstr;

void ok(muster_status_t status) {
  ASSERT_EQ(status, MUSTER_OK) << muster_last_error();
}

using TensorParallel = muster::test::RunningRanks;

// A column weight [4, 3], a row weight [3, 4] and a norm [3] over dp_replicate, dp_shard and tp, by the rules
// of a Llama.
class SmallModel {
 public:
  explicit SmallModel(Member& member, std::uint32_t norm_flags) : member_(member) {
    ok(muster_units_create(member.session, nullptr, &units));
    const std::vector<const char*> names{"layers.0.feed_forward.w1.weight", "layers.0.feed_forward.w2.weight",
                                         "layers.0.ffn_norm.weight"};
    const std::vector<std::vector<std::int64_t>> shapes{{4, 3}, {3, 4}, {3}};
    std::vector<muster_parameter> parameters;
    for (std::size_t i = 0; i < names.size(); ++i) {
      muster_layout* layout = nullptr;
      ok(muster_tp_layout(member.session, nullptr, 0, names[i], shapes[i].data(),
                          static_cast<std::int32_t>(shapes[i].size()), "dp_shard_cp", "tp", &layout));
      layouts_.push_back(layout);
      parameters.push_back({names[i], layout, MUSTER_F32, i == 2 ? norm_flags : 0});
    }
    muster_unit_options options = MUSTER_UNIT_OPTIONS_INIT;
    options.name = "layer";
    options.shard = "dp_shard_cp";
    options.replicate = "dp_replicate";
    options.tensor = "tp";
    options.parameters = parameters.data();
    options.parameter_count = 3;
    muster_unit unit = 0;
    ok(muster_unit_create(units, &options, &unit));
  }
  SmallModel(const SmallModel&) = delete;
  SmallModel& operator=(const SmallModel&) = delete;
  ~SmallModel() {
    ok(muster_units_destroy(units));
    for (muster_layout* layout : layouts_) ok(muster_layout_destroy(layout));
  }
  // All of a view, which has no gaps.
  std::vector<float*> elements(std::uint32_t parameter, std::int32_t which) const {
    muster_tensor tensor{};
    ok(muster_unit_tensor(units, 0, parameter, which, &tensor));
    muster_buffer_info info = MUSTER_BUFFER_INFO_INIT;
    ok(muster_buffer_query(member_.session, tensor.buffer, &info));
    auto* first = reinterpret_cast<float*>(static_cast<std::byte*>(info.address) + tensor.offset_bytes);
    std::int64_t count = 1;
    for (std::int32_t dim = 0; dim < tensor.dims; ++dim) count *= tensor.size[dim];
    std::vector<float*> all;
    for (std::int64_t i = 0; i < count; ++i) all.push_back(first + i);
    return all;
  }
  // A step whose backward leaves `gradients` of the three parameters, the same in each element.
  void step(const std::vector<float>& gradients) {
    ok(muster_step_begin(units, MUSTER_POINT_NONE, 0));
    muster_point ready = MUSTER_POINT_NONE;
    ok(muster_unit_forward_begin(units, 0, &ready));
    ok(muster_point_wait(member_.session, ready, -1));
    ok(muster_unit_forward_end(units, 0, 0, MUSTER_POINT_NONE));
    muster_point both[2];
    ok(muster_unit_backward_begin(units, 0, both));
    for (const muster_point point : both) ok(muster_point_wait(member_.session, point, -1));
    for (std::uint32_t p = 0; p < 3; ++p)
      for (float* element : elements(p, MUSTER_UNIT_WHOLE_GRADIENT)) *element = gradients[p];
    ok(muster_unit_backward_end(units, 0, 0, MUSTER_POINT_NONE, 0, nullptr));
    ok(muster_step_end(units, MUSTER_POINT_NONE, both));
    for (const muster_point point : both) ok(muster_point_wait(member_.session, point, -1));
  }

  muster_units* units = nullptr;

 private:
  Member& member_;
  std::vector<muster_layout*> layouts_;
};

// Case T3: halves of a sequence give a norm gradients of 3 and 5, which are 8 on both ranks. Without sequence
// parallelism both have 8, and it stays.
TEST_F(TensorParallel, SumsGradientsOfWhatSeesItsPartOfTheSequence) {
  mesh = "dp_shard=2,tp=2";
  with_ranks(4, [&](Member& member) {
    const int tp = member.rank % 2;
    {
      SmallModel model(member, MUSTER_PARAMETER_SUMMED_OVER_TP);
      for (int step = 0; step < 2; ++step) {
        model.step({1, 2, tp == 0 ? 3.0F : 5.0F});
        for (const float* element : model.elements(2, MUSTER_UNIT_GRADIENT_SHARD)) EXPECT_EQ(*element, 8);
        for (const float* element : model.elements(0, MUSTER_UNIT_GRADIENT_SHARD)) EXPECT_EQ(*element, 1);
      }
    }
    SmallModel model(member, 0);
    model.step({1, 2, 8});
    for (const float* element : model.elements(2, MUSTER_UNIT_GRADIENT_SHARD)) EXPECT_EQ(*element, 8);
    meet_and_leave(member);
  });
}

// Goal:   each element of each parameter counts once, whatever dims cut it and however many replicas there
// are.
TEST_F(TensorParallel, CountsEachGradientOnce) {
  for (const auto& [world, shape] :
       std::vector<std::pair<int, const char*>>{{1, "dp_shard=1"},
                                                {2, "tp=2,dp_shard=1"},
                                                {8, "dp_replicate=2,dp_shard=2,tp=2"},
                                                {4, "dp_shard=2,cp=2"},
                                                {3, "dp_replicate=3,dp_shard=1"},
                                                {6, "dp_shard=3,tp=2"}}) {
    mesh = shape;
    with_ranks(world, [&](Member& member) {
      SmallModel model(member, 0);
      muster_buffer buffer = 0;
      void* address = nullptr;
      ok(muster_buffer_alloc(member.session, sizeof(double), &buffer, &address));
      muster_tensor out{};
      out.buffer = buffer;
      out.dtype = MUSTER_F64;
      out.dims = 1;
      out.size[0] = out.stride[0] = 1;
      for (int step = 1; step < 3; ++step) {
        const auto scale = static_cast<float>(step);
        model.step({scale, 2 * scale, 3 * scale});
        muster_point done = MUSTER_POINT_NONE;
        ok(muster_units_square_sum(model.units, &out, &done));
        ok(muster_point_wait(member.session, done, -1));
        EXPECT_EQ(*static_cast<double*>(address), (12 + 12 * 4 + 3 * 9) * step * step) << shape;
      }
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
    EXPECT_EQ(rule, 1U);
    muster_op op = -1;
    ok(muster_tp_collective(MUSTER_TP_COLUMN, MUSTER_TP_INPUT_GRADIENT, 0, &op));
    EXPECT_EQ(op, MUSTER_ALL_REDUCE);
    EXPECT_EQ(muster_tp_collective(9, 0, 0, &op), MUSTER_ERR_BAD_ARGUMENT);
    EXPECT_EQ(muster_tp_collective(0, 9, 0, &op), MUSTER_ERR_BAD_ARGUMENT);
  });
}

}  // namespace
