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

// Goal:   case T3: halves of a sequence give a norm gradients of 3 and 5, which are 8 on both ranks. Without
//         sequence parallelism both have 8, and it stays.
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

using Matrix = std::vector<float>;  // row-major

// a [rows, inner] times the transpose of b [columns, inner].
Matrix product(const Matrix& a, const Matrix& b, std::size_t inner) {
  Matrix made;
  for (std::size_t i = 0; i < a.size(); i += inner)
    for (std::size_t j = 0; j < b.size(); j += inner) {
      float sum = 0;
      for (std::size_t k = 0; k < inner; ++k) sum += a[i + k] * b[j + k];
      made.push_back(sum);
    }
  return made;
}

// A column layer of 2 to 4 and a row layer of 4 to 2, over 4 tokens and two ranks. Which collectives there
// are, muster_tp_collective says.
class TwoLayers {
 public:
  TwoLayers(Member& member, bool sequence_parallel) : member_(member), in_parts_(sequence_parallel) {
    ok(muster_buffer_alloc(member.session, 256, &buffer_, &address_));
  }
  Matrix forward(const Matrix& x) {
    const Matrix column{r() + 1, 2, 3 - r(), 5};
    const Matrix row{1, r() + 2, -1, 3};
    const Matrix h = product(at(MUSTER_TP_COLUMN, MUSTER_TP_INPUT, part(x)), column, 2);
    return at(MUSTER_TP_ROW, MUSTER_TP_OUTPUT, product(h, row, 2));
  }
  Matrix backward(const Matrix& dy) {
    const Matrix column{r() + 1, 3 - r(), 2, 5};  // transposed
    const Matrix row{1, -1, r() + 2, 3};
    const Matrix dh = product(at(MUSTER_TP_ROW, MUSTER_TP_OUTPUT_GRADIENT, part(dy)), row, 2);
    return at(MUSTER_TP_COLUMN, MUSTER_TP_INPUT_GRADIENT, product(dh, column, 2));
  }
  // What this rank has of a matrix of four tokens, outside of the layers.
  Matrix part(const Matrix& whole) const {
    if (!in_parts_) return whole;
    const auto half = static_cast<std::ptrdiff_t>(whole.size() / 2);
    return {whole.begin() + member_.rank * half, whole.begin() + (member_.rank + 1) * half};
  }
  int collectives = 0;

 private:
  float r() const { return static_cast<float>(member_.rank); }
  Matrix at(muster_tp_style style, muster_tp_moment moment, const Matrix& own) {
    muster_collective c = MUSTER_COLLECTIVE_INIT;
    ok(muster_tp_collective(style, moment, in_parts_ ? 1 : 0, &c.op));
    if (c.op == 0) return own;
    ++collectives;
    auto* memory = static_cast<float*>(address_);
    std::ranges::copy(own, memory);
    c.group = member_.group;
    c.dtype = MUSTER_F32;
    c.source = {buffer_, 0};
    c.target = {buffer_, 128};
    if (c.op != MUSTER_ALL_GATHER) c.redop = MUSTER_SUM;
    c.count = c.op == MUSTER_REDUCE_SCATTER ? own.size() / 2 : own.size();
    EXPECT_EQ(member_.run(c), MUSTER_OK) << member_.error;
    const std::size_t count = c.op == MUSTER_ALL_GATHER ? 2 * c.count : c.count;
    return {memory + 32, memory + 32 + count};
  }

  Member& member_;
  bool in_parts_;
  muster_buffer buffer_ = 0;
  void* address_ = nullptr;
};

// Goal:   case T2: with sequence parallelism a column and a row layer give the same results in parts of the
//         sequence. There are two collectives forward and two backward, as against one and one.
TEST_F(TensorParallel, IsTheSameInPartsOfTheSequence) {
  mesh = "tp=2";
  with_ranks(2, [&](Member& member) {
    const Matrix x{1, 2, 3, 4, 5, 6, 7, 8}, dy{2, -1, 0, 3, 1, 1, -2, 4};
    TwoLayers usual(member, false), in_parts(member, true);
    EXPECT_EQ(in_parts.forward(x), in_parts.part(usual.forward(x)));
    EXPECT_EQ(in_parts.backward(dy), in_parts.part(usual.backward(dy)));
    EXPECT_EQ(usual.forward(x).size(), 8U);
    EXPECT_EQ(usual.collectives, 3);
    EXPECT_EQ(in_parts.collectives, 4);
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
