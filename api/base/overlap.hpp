// Whether two strided views of memory have a byte in common. Exact: the faces of a halo exchange interleave
// without meeting, which no comparison of ranges can tell.
#pragma once

#include "api/base/collective.hpp"

#include <cstdint>

namespace muster {

// How much work the comparisons of one call may be: views that are nested (each stride beyond the extent of
// the dims inside it) need a few steps a pair, but there are views made to be hard.
struct OverlapBudget {
  std::uint32_t steps = 1 << 20;
};

enum class Overlap : std::uint8_t { kNone, kSome, kUnknown };  // kUnknown: the budget is spent

// Both have 0..4 dims, no negative size or stride, and span less than 2^63 bytes.
Overlap overlap_of(const Face& a, const Face& b, OverlapBudget& budget) noexcept;

// Whether no two elements of a view can meet, because each stride is beyond the extent of the dims inside it.
bool is_nested(const Face& face) noexcept;

}  // namespace muster
