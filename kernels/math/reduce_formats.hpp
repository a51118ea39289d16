// Entry points of the reduction loops, one per dtype, each behind Highway's run-time dispatch. Internal to
// kernels/math.
#pragma once

#include <muster/muster.h>

#include <cstddef>
#include <cstdint>

namespace muster::math {

// One reduction as the loops see it: checked, and any redop but i64's AVG.
struct Reduction {
  muster_redop redop;
  const std::byte* const* sources;
  std::size_t source_count;
  std::byte* target;
  std::size_t count;
  double scale;
};

// The scale of an integer reduction, as the bits that wrap.
inline std::uint64_t whole_scale(double scale) {
  return static_cast<std::uint64_t>(static_cast<std::int64_t>(scale));
}

void reduce_f32(const Reduction& reduction);
void reduce_f64(const Reduction& reduction);
void reduce_bf16(const Reduction& reduction);
void reduce_f16(const Reduction& reduction);
void reduce_f8_e4m3(const Reduction& reduction);
void reduce_f8_e5m2(const Reduction& reduction);
void reduce_i32(const Reduction& reduction);
void reduce_i64(const Reduction& reduction);
void reduce_u8(const Reduction& reduction);
void reduce_i8(const Reduction& reduction);

}  // namespace muster::math
