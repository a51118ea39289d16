// The reduction loops of each dtype, for the SIMD target that Highway chooses at run time. Internal to
// kernels/math.
#pragma once

#include "kernels/math/reducer.hpp"

#include <cstdint>

namespace muster::math {

// The scale of an integer reduction, as the bits that wrap.
inline std::uint64_t whole_scale(double scale) {
  return static_cast<std::uint64_t>(static_cast<std::int64_t>(scale));
}

// `dtype`: f32 or f64; bf16 or f16; f8_e4m3 or f8_e5m2; i32, i64, u8 or i8.
Reducer reducer_real(muster_dtype dtype, muster_redop redop);
Reducer reducer_half(muster_dtype dtype, muster_redop redop);
Reducer reducer_quarter(muster_dtype dtype, muster_redop redop);
Reducer reducer_integer(muster_dtype dtype, muster_redop redop);

}  // namespace muster::math
