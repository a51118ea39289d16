#include "api/client/check/kernel_operands.hpp"

#include <algorithm>
#include <iterator>

#include <muster/field_kernels.h>

namespace muster::client {
namespace {

// In the order of their numbers.
constexpr KernelOperands kKernels[] = {
    {MUSTER_KERNEL_COPY, "copy", 0b10},
    {MUSTER_KERNEL_FILL, "fill", 0b1},
    {MUSTER_KERNEL_AXPBY, "axpby", 0b10},
    {MUSTER_KERNEL_SUM, "sum", 0b10},
    {MUSTER_KERNEL_SUM_SQUARES, "sum_squares", 0b10},
    {MUSTER_KERNEL_CLIP_COEFFICIENT, "clip_coefficient", 0b10},
    {MUSTER_KERNEL_COUNT_ZEROS, "count_zeros", 0b10},
    {MUSTER_KERNEL_LINEAR_FORWARD, "linear_forward", 0b1000},
    {MUSTER_KERNEL_LINEAR_DGRAD, "linear_dgrad", 0b100},
    {MUSTER_KERNEL_LINEAR_WGRAD, "linear_wgrad", 0b1100},
    {MUSTER_KERNEL_EMBEDDING_FORWARD, "embedding_forward", 0b100},
    {MUSTER_KERNEL_EMBEDDING_BACKWARD, "embedding_backward", 0b100},
    {MUSTER_KERNEL_RMS_NORM_FORWARD, "rms_norm_forward", 0b1100},
    {MUSTER_KERNEL_RMS_NORM_BACKWARD, "rms_norm_backward", 0b110000},
    {MUSTER_KERNEL_LAYER_NORM_FORWARD, "layer_norm_forward", 0b111000},
    {MUSTER_KERNEL_LAYER_NORM_BACKWARD, "layer_norm_backward", 0b11100000},
    {MUSTER_KERNEL_ROPE, "rope", 0b10},
    {MUSTER_KERNEL_ATTENTION_FORWARD, "attention_forward", 0b11000},
    {MUSTER_KERNEL_ATTENTION_BACKWARD, "attention_backward", 0b111000000},
    {MUSTER_KERNEL_GELU_FORWARD, "gelu_forward", 0b10},
    {MUSTER_KERNEL_GELU_BACKWARD, "gelu_backward", 0b100},
    {MUSTER_KERNEL_SWIGLU_FORWARD, "swiglu_forward", 0b100},
    {MUSTER_KERNEL_SWIGLU_BACKWARD, "swiglu_backward", 0b11000},
    {MUSTER_KERNEL_CROSS_ENTROPY_FORWARD, "cross_entropy_forward", 0b1100},
    {MUSTER_KERNEL_CROSS_ENTROPY_BACKWARD, "cross_entropy_backward", 0b1000},
    {MUSTER_KERNEL_VOCAB_MAX, "vocab_max", 0b10},
    {MUSTER_KERNEL_VOCAB_SUM_EXP, "vocab_sum_exp", 0b1000},
    {MUSTER_KERNEL_VOCAB_LOSS, "vocab_loss", 0b100},
    {MUSTER_KERNEL_VOCAB_BACKWARD, "vocab_backward", 0b10000},
    {MUSTER_KERNEL_ADAMW, "adamw", 0b1101},
    {MUSTER_KERNEL_DROPOUT_FORWARD, "dropout_forward", 0b10},
    {MUSTER_KERNEL_DROPOUT_BACKWARD, "dropout_backward", 0b10},
    {MUSTER_KERNEL_CONVOLUTION_FORWARD, "convolution_forward", 0b1000},
    {MUSTER_KERNEL_CONVOLUTION_DGRAD, "convolution_dgrad", 0b100},
    {MUSTER_KERNEL_CONVOLUTION_WGRAD, "convolution_wgrad", 0b1100},
    {MUSTER_KERNEL_GROUP_NORM_STATISTICS, "group_norm_statistics", 0b10},
    {MUSTER_KERNEL_GROUP_NORM_MERGE, "group_norm_merge", 0b10},
    {MUSTER_KERNEL_GROUP_NORM_FORWARD, "group_norm_forward", 0b10000},
    {MUSTER_KERNEL_GROUP_NORM_BACKWARD_SUMS, "group_norm_backward_sums", 0b1110000},
    {MUSTER_KERNEL_GROUP_NORM_BACKWARD, "group_norm_backward", 0b100000},
    {MUSTER_KERNEL_INTERPOLATE_FORWARD, "interpolate_forward", 0b10},
    {MUSTER_KERNEL_INTERPOLATE_BACKWARD, "interpolate_backward", 0b10},
    {MUSTER_KERNEL_SUM_OVER, "sum_over", 0b10},
    {MUSTER_KERNEL_SPREAD, "spread", 0b10},
    {MUSTER_KERNEL_PRODUCT, "product", 0b100},
};

}  // namespace

const KernelOperands* operands_of(std::int32_t op) noexcept {
  const auto* const found =
      std::ranges::find_if(kKernels, [op](const KernelOperands& kernel) { return kernel.op == op; });
  return found == std::end(kKernels) ? nullptr : found;
}

}  // namespace muster::client
