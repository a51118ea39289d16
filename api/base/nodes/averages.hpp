// Reductions whose result is divided, or whose sources are scaled: what is folded of contributions that are
// combined already.
#pragma once

#include <muster/collectives.h>

#include <cstddef>
#include <cstdint>

namespace muster::transport::span {

// The operator by which combined contributions are folded.
inline muster_redop folded_by(muster_redop redop) {
  return redop == MUSTER_AVG || redop == MUSTER_PREMUL_SUM ? MUSTER_SUM : redop;
}

// Divides sums by the number of ranks: of f64 if `is_double`, else of f32.
inline void average(std::byte* data, std::uint64_t count, std::int32_t ranks, bool is_double) {
  const auto divide = [&]<class Real>(Real* values) {
    for (std::uint64_t i = 0; i < count; ++i) values[i] /= static_cast<Real>(ranks);
  };
  if (is_double)
    divide(reinterpret_cast<double*>(data));
  else
    divide(reinterpret_cast<float*>(data));
}

}  // namespace muster::transport::span
