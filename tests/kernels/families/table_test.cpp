#include "kernels/table.hpp"

#include <muster/field_kernels.h>

#include <set>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

namespace muster::kernels {
namespace {

// Goal:   each number of the public header has its row, and no row has a number of its own.
// Method: the numbers again, as kernels.h lists them.
TEST(Table, HasOneRowForEachPublicKernelInOrder) {
  const std::vector<std::int32_t> published{
      MUSTER_KERNEL_COPY,
      MUSTER_KERNEL_FILL,
      MUSTER_KERNEL_AXPBY,
      MUSTER_KERNEL_SUM,
      MUSTER_KERNEL_SUM_SQUARES,
      MUSTER_KERNEL_CLIP_COEFFICIENT,
      MUSTER_KERNEL_COUNT_ZEROS,
      MUSTER_KERNEL_LINEAR_FORWARD,
      MUSTER_KERNEL_LINEAR_DGRAD,
      MUSTER_KERNEL_LINEAR_WGRAD,
      MUSTER_KERNEL_EMBEDDING_FORWARD,
      MUSTER_KERNEL_EMBEDDING_BACKWARD,
      MUSTER_KERNEL_RMS_NORM_FORWARD,
      MUSTER_KERNEL_RMS_NORM_BACKWARD,
      MUSTER_KERNEL_LAYER_NORM_FORWARD,
      MUSTER_KERNEL_LAYER_NORM_BACKWARD,
      MUSTER_KERNEL_ROPE,
      MUSTER_KERNEL_ATTENTION_FORWARD,
      MUSTER_KERNEL_ATTENTION_BACKWARD,
      MUSTER_KERNEL_GELU_FORWARD,
      MUSTER_KERNEL_GELU_BACKWARD,
      MUSTER_KERNEL_SWIGLU_FORWARD,
      MUSTER_KERNEL_SWIGLU_BACKWARD,
      MUSTER_KERNEL_CROSS_ENTROPY_FORWARD,
      MUSTER_KERNEL_CROSS_ENTROPY_BACKWARD,
      MUSTER_KERNEL_VOCAB_MAX,
      MUSTER_KERNEL_VOCAB_SUM_EXP,
      MUSTER_KERNEL_VOCAB_LOSS,
      MUSTER_KERNEL_VOCAB_BACKWARD,
      MUSTER_KERNEL_ADAMW,
      MUSTER_KERNEL_DROPOUT_FORWARD,
      MUSTER_KERNEL_DROPOUT_BACKWARD,
      MUSTER_KERNEL_CONVOLUTION_FORWARD,
      MUSTER_KERNEL_CONVOLUTION_DGRAD,
      MUSTER_KERNEL_CONVOLUTION_WGRAD,
      MUSTER_KERNEL_GROUP_NORM_STATISTICS,
      MUSTER_KERNEL_GROUP_NORM_MERGE,
      MUSTER_KERNEL_GROUP_NORM_FORWARD,
      MUSTER_KERNEL_GROUP_NORM_BACKWARD_SUMS,
      MUSTER_KERNEL_GROUP_NORM_BACKWARD,
      MUSTER_KERNEL_INTERPOLATE_FORWARD,
      MUSTER_KERNEL_INTERPOLATE_BACKWARD,
      MUSTER_KERNEL_SUM_OVER,
      MUSTER_KERNEL_SPREAD,
      MUSTER_KERNEL_PRODUCT,
  };
  std::vector<std::int32_t> listed;
  std::set<std::string> names;
  for (const Kernel& row : all()) {
    listed.push_back(row.op);
    names.insert(row.name);
    EXPECT_NE(row.check, nullptr) << row.name;
    EXPECT_NE(row.parts, nullptr) << row.name;
    EXPECT_LE(row.operands.size(), std::size_t{MUSTER_KERNEL_TENSORS_MAX}) << row.name;
    EXPECT_LE(row.ints, std::uint32_t{MUSTER_KERNEL_INTS_MAX}) << row.name;
    EXPECT_LE(row.reals, std::uint32_t{MUSTER_KERNEL_REALS_MAX}) << row.name;
    EXPECT_EQ(find(row.op), &row);
  }
  EXPECT_EQ(listed, published);
  EXPECT_EQ(names.size(), published.size());
}

TEST(Table, FindsNothingForANumberThatIsNoKernel) {
  for (const std::int32_t op : {-1, 0, 8, 9, 13, 79, 81, 1000000}) EXPECT_EQ(find(op), nullptr) << op;
}

// Goal: the operand tables agree with the builders, which decide the order: as many operands, the optional
//       ones optional.
TEST(Table, TakesAsManyOperandsAsTheBuilderAdds) {
  const muster_tensor t = muster_none();
  const muster_convolution field = MUSTER_CONVOLUTION_INIT;
  const muster_interpolation interpolated = MUSTER_INTERPOLATION_INIT;
  const std::vector<muster_kernel> built{
      muster_copy(t, t),
      muster_fill(t, 0.0),
      muster_axpby(1.0, t, 1.0, t),
      muster_sum(t, t, 1.0, 0),
      muster_sum_squares(t, t, 1.0, 0),
      muster_clip_coefficient(t, t, 1.0),
      muster_count_zeros(t, t, 1.0, 0),
      muster_linear_forward(t, t, t, t),
      muster_linear_dgrad(t, t, t, 0),
      muster_linear_wgrad(t, t, t, t, 0),
      muster_embedding_forward(t, t, t, 0),
      muster_embedding_backward(t, t, t, 0, 0),
      muster_rms_norm_forward(t, t, t, t, 1e-5),
      muster_rms_norm_backward(t, t, t, t, t, t, 0, 0),
      muster_layer_norm_forward(t, t, t, t, t, t, 1e-5),
      muster_layer_norm_backward(t, t, t, t, t, t, t, t, 0, 0),
      muster_rope(t, t, 0, 1e4, 1),
      muster_attention_forward(t, t, t, t, t, 1.0, 0, 0, 0),
      muster_attention_backward(t, t, t, t, t, t, t, t, t, 1.0, 0, 0, 0),
      muster_gelu_forward(t, t),
      muster_gelu_backward(t, t, t),
      muster_swiglu_forward(t, t, t),
      muster_swiglu_backward(t, t, t, t, t),
      muster_cross_entropy_forward(t, t, t, t),
      muster_cross_entropy_backward(t, t, t, t, 1.0),
      muster_vocab_max(t, t),
      muster_vocab_sum_exp(t, t, t, t, 0),
      muster_vocab_loss(t, t, t),
      muster_vocab_backward(t, t, t, t, t, 0, 1.0),
      muster_adamw(t, t, t, t, t, muster_adamw_options{0, 0, 0, 0, 0}),
      muster_dropout_forward(t, t, 0.1, 0, 0),
      muster_dropout_backward(t, t, 0.1, 0, 0),
      muster_convolution_forward(&field, t, t, t, t),
      muster_convolution_dgrad(&field, t, t, t, 0),
      muster_convolution_wgrad(&field, t, t, t, t, 0),
      muster_group_norm_statistics(t, t),
      muster_group_norm_merge(t, t, 1e-5),
      muster_group_norm_forward(t, t, t, t, t),
      muster_group_norm_backward_sums(t, t, t, t, t, t, t, 0),
      muster_group_norm_backward(t, t, t, t, t, t),
      muster_interpolate_forward(&interpolated, t, t),
      muster_interpolate_backward(&interpolated, t, t, 0),
      muster_sum_over(t, t, 1.0, 0),
      muster_spread(t, t, 1.0, 0),
      muster_product(t, t, t, 1.0, 0),
  };
  // As the comments of the builders say.
  const std::set<std::pair<std::int32_t, std::size_t>> optional{
      {MUSTER_KERNEL_LINEAR_FORWARD, 2},           {MUSTER_KERNEL_LINEAR_WGRAD, 3},
      {MUSTER_KERNEL_LAYER_NORM_FORWARD, 2},       {MUSTER_KERNEL_LAYER_NORM_BACKWARD, 7},
      {MUSTER_KERNEL_CONVOLUTION_FORWARD, 2},      {MUSTER_KERNEL_CONVOLUTION_WGRAD, 3},
      {MUSTER_KERNEL_GROUP_NORM_FORWARD, 2},       {MUSTER_KERNEL_GROUP_NORM_FORWARD, 3},
      {MUSTER_KERNEL_GROUP_NORM_BACKWARD_SUMS, 3}, {MUSTER_KERNEL_GROUP_NORM_BACKWARD_SUMS, 5},
      {MUSTER_KERNEL_GROUP_NORM_BACKWARD_SUMS, 6}, {MUSTER_KERNEL_GROUP_NORM_BACKWARD, 3}};
  ASSERT_EQ(built.size(), all().size());
  for (std::size_t i = 0; i < built.size(); ++i) {
    const Kernel& row = all()[i];
    EXPECT_EQ(built[i].op, row.op);
    EXPECT_EQ(row.operands.size(), built[i].tensor_count) << row.name;
    EXPECT_EQ(row.ints, built[i].int_count) << row.name;
    EXPECT_EQ(row.reals, built[i].real_count) << row.name;
    for (std::size_t k = 0; k < row.operands.size(); ++k)
      EXPECT_EQ(row.operands[k].optional, optional.contains({row.op, k})) << row.name << ", operand " << k;
  }
}

}  // namespace
}  // namespace muster::kernels
