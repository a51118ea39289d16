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

Reducer reducer_f32(muster_redop redop);
Reducer reducer_f64(muster_redop redop);
Reducer reducer_bf16(muster_redop redop);
Reducer reducer_f16(muster_redop redop);
Reducer reducer_f8_e4m3(muster_redop redop);
Reducer reducer_f8_e5m2(muster_redop redop);
Reducer reducer_i32(muster_redop redop);
Reducer reducer_i64(muster_redop redop);
Reducer reducer_u8(muster_redop redop);
Reducer reducer_i8(muster_redop redop);

}  // namespace muster::math
