#include "kernels/kernel.hpp"

#include <muster/kernels.h>

#include <set>
#include <string>
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
  };
  std::vector<std::int32_t> listed;
  std::set<std::string> names;
  for (const Kernel& row : all()) {
    listed.push_back(row.op);
    names.insert(row.name);
    EXPECT_NE(row.check, nullptr) << row.name;
    EXPECT_NE(row.parts, nullptr) << row.name;
    EXPECT_LE(row.operands.size(), std::size_t{MUSTER_KERNEL_TENSORS_MAX}) << row.name;
    EXPECT_EQ(find(row.op), &row);
  }
  EXPECT_EQ(listed, published);
  EXPECT_EQ(names.size(), published.size());
}

TEST(Table, FindsNothingForANumberThatIsNoKernel) {
  for (const std::int32_t op : {-1, 0, 7, 9, 13, 79, 81, 1000000}) EXPECT_EQ(find(op), nullptr) << op;
}

// Goal: the operand tables agree with the builders, which decide the order: as many operands, the optional
// ones optional.
TEST(Table, TakesAsManyOperandsAsTheBuilderAdds) {
  const muster_tensor t = muster_none();
  EXPECT_EQ(find(MUSTER_KERNEL_COPY)->operands.size(), muster_copy(t, t).tensor_count);
  EXPECT_EQ(find(MUSTER_KERNEL_FILL)->operands.size(), muster_fill(t, 0.0).tensor_count);
  EXPECT_EQ(find(MUSTER_KERNEL_AXPBY)->operands.size(), muster_axpby(1.0, t, 1.0, t).tensor_count);
  EXPECT_EQ(find(MUSTER_KERNEL_SUM)->operands.size(), muster_sum(t, t, 1.0, 0).tensor_count);
  EXPECT_EQ(find(MUSTER_KERNEL_CLIP_COEFFICIENT)->operands.size(),
            muster_clip_coefficient(t, t, 1.0).tensor_count);
  EXPECT_EQ(find(MUSTER_KERNEL_LINEAR_FORWARD)->operands.size(),
            muster_linear_forward(t, t, t, t).tensor_count);
  EXPECT_EQ(find(MUSTER_KERNEL_LINEAR_DGRAD)->operands.size(), muster_linear_dgrad(t, t, t, 0).tensor_count);
  EXPECT_EQ(find(MUSTER_KERNEL_LINEAR_WGRAD)->operands.size(),
            muster_linear_wgrad(t, t, t, t, 0).tensor_count);
  EXPECT_EQ(find(MUSTER_KERNEL_EMBEDDING_FORWARD)->operands.size(),
            muster_embedding_forward(t, t, t, 0).tensor_count);
  EXPECT_EQ(find(MUSTER_KERNEL_EMBEDDING_BACKWARD)->operands.size(),
            muster_embedding_backward(t, t, t, 0, 0).tensor_count);
  EXPECT_EQ(find(MUSTER_KERNEL_ADAMW)->operands.size(),
            muster_adamw(t, t, t, t, t, muster_adamw_options{0, 0, 0, 0, 0}).tensor_count);
  EXPECT_TRUE(find(MUSTER_KERNEL_LINEAR_FORWARD)->operands[2].optional);
  EXPECT_TRUE(find(MUSTER_KERNEL_LINEAR_WGRAD)->operands[3].optional);
}

}  // namespace
}  // namespace muster::kernels
