// reduce(): many vectors into one, in one pass over memory and in one order, so that equal inputs give equal
// bits on every SIMD target, thread count and run (decision D14).
//
// Order    ((0+1)+(2+3))+(4+5): the balanced binary tree over source index, split at the largest power of two
//          below the number of sources.
// Types    8-bit and 16-bit floats are widened to f32, reduced in f32 and rounded once, to nearest even. f32
//          and f64 stay what they are. Integers wrap modulo 2^bits. No multiply is ever fused with an add.
// Range    a result that rounds to more than the largest element becomes infinity, or NaN in f8_e4m3, which
//          has no infinity. Nothing saturates.
// AVG      floats: the sum, then one true division by n in the accumulation type (before the rounding of
//          small floats). i32, u8, i8: the sum in 64 bits, which cannot overflow; i64: the sum wraps. Then
//          one division towards zero.
// MAX, MIN NaN if any source is NaN; -0 orders below +0; infinities order as usual.
// PREMUL   each source times scale, rounded to the accumulation type, then the sum. For integers scale is a
//          whole number with |scale| < 2^63, taken modulo 2^bits.
// NaN      every NaN that a float reduction writes is the positive quiet one with an empty payload (0x7F in
//          f8_e4m3), also with one source. Payloads of the sources would make the result depend on the
//          order of an instruction's operands.
#pragma once

#include "kernels/math/reducer.hpp"

#include <muster/muster.h>

#include <cstddef>
#include <span>

namespace muster::math {

inline constexpr std::size_t kReduceSourcesMax = 4096;

// Reduces `count` elements of each source into target. 1..kReduceSourcesMax sources; no alignment is needed.
// The target may be exactly one of the sources (in place), but must not overlap one in any other way.
void reduce(muster_dtype dtype, muster_redop redop, std::span<const std::byte* const> sources,
            std::byte* target, std::size_t count, double scale);

// The loops that reduce() chooses for a dtype and a redop.
Reducer reducer_of(muster_dtype dtype, muster_redop redop);

// The SIMD target that reduce() and copy() run on here: "AVX3", "AVX2", … Static storage.
const char* simd_target() noexcept;

}  // namespace muster::math
