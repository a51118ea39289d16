// Sums of floats in one fixed order on every machine. Blocks of 1024 terms are summed in 32 interleaved
// lanes, which are folded in halves; blocks are added in double. So the error stays near one rounding.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>

namespace muster::math {

inline constexpr std::int64_t kSumBlock = 1024;
inline constexpr std::int64_t kSumLanes = 32;

// Sums a block whose length is a multiple of kSumLanes.
[[gnu::always_inline]] inline float sum_block(const float* terms, std::int64_t count) {
  using Eight = float __attribute__((vector_size(32)));
  constexpr std::size_t kBytes = sizeof(Eight);
  Eight a{}, b{}, c{}, d{};  // four variables, because an array of them would live in memory
  for (std::int64_t i = 0; i < count; i += kSumLanes) {
    Eight e, f, g, h;
    std::memcpy(&e, terms + i, kBytes);
    std::memcpy(&f, terms + i + 8, kBytes);
    std::memcpy(&g, terms + i + 16, kBytes);
    std::memcpy(&h, terms + i + 24, kBytes);
    a += e;
    b += f;
    c += g;
    d += h;
  }
  const Eight folded = (a + b) + (c + d);
  float f[8];
  std::memcpy(f, &folded, sizeof f);
  return ((f[0] + f[4]) + (f[2] + f[6])) + ((f[1] + f[5]) + (f[3] + f[7]));
}

// Σ term(i) for i in [0, count). `term` is a pure function of i, or writes element i of its own as a
// by-product.
template<class Term>
[[gnu::always_inline]] inline double sum_of(std::int64_t count, Term term) {
  alignas(64) float terms[kSumBlock];
  double total = 0.0;
  for (std::int64_t begin = 0; begin < count; begin += kSumBlock) {
    const std::int64_t length = std::min(kSumBlock, count - begin);
#pragma omp simd
    for (std::int64_t i = 0; i < length; ++i) terms[i] = term(begin + i);
    const std::int64_t padded = (length + kSumLanes - 1) / kSumLanes * kSumLanes;
    for (std::int64_t i = length; i < padded; ++i) terms[i] = 0.0f;
    total += static_cast<double>(sum_block(terms, padded));
  }
  return total;
}

}  // namespace muster::math
