// Shared by the dense and the vocabulary-parallel loss: targets, the cut into parts, and sums over a row of
// logits.
#pragma once

#include "kernels/math/exponential.hpp"
#include "kernels/math/sum.hpp"
#include "kernels/row.hpp"

#include <algorithm>
#include <cstdint>
#include <limits>

namespace muster::kernels::loss {

inline constexpr std::int32_t kIgnored = -1;
inline constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// 20 to 50 µs.
inline constexpr std::int64_t kElementsPerPart = 32 * 1024;

// For [T, V] logits.
inline std::int64_t tokens_per_part(const Tensor& logits) {
  return std::max<std::int64_t>(1, kElementsPerPart / std::max<std::int64_t>(1, logits.size[1]));
}
// For VOCAB_LOSS, which takes one logarithm a token.
inline constexpr std::int64_t kTokensPerLossPart = 8 * 1024;

inline std::int32_t target_at(const Tensor& targets, std::int64_t token) {
  return load_index(elements<std::int32_t>(targets) + token * targets.stride[0]);
}

// -inf for an empty row.
inline float row_max(const float* x, std::int64_t count) {
  float largest = -std::numeric_limits<float>::infinity();
#pragma omp simd reduction(max : largest)
  for (std::int64_t k = 0; k < count; ++k) largest = x[k] > largest ? x[k] : largest;
  return largest;
}

// Σ e^(x - shift).
inline double sum_exp(const float* x, std::int64_t count, float shift) {
  return math::sum_of(count, [=](std::int64_t k) { return math::exponential(x[k] - shift); });
}

void dense_forward(const Args& args, Range tokens);
void dense_backward(const Args& args, Range tokens);
void vocab_max(const Args& args, Range tokens);
void vocab_sum_exp(const Args& args, Range tokens);
void vocab_loss(const Args& args, Range tokens);
void vocab_backward(const Args& args, Range tokens);

}  // namespace muster::kernels::loss
