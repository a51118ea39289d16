// Whether two strided views of memory share a byte. The test is exact, because faces of a halo exchange
// interleave without meeting: their address ranges overlap, their bytes do not.
#pragma once

#include "api/base/collective/collective.hpp"

#include <cstdint>

namespace muster {

// Steps that all comparisons of one call may take together. Nested views (is_nested()) need a few steps a
// pair; hostile views could need very many.
struct OverlapBudget {
  std::uint32_t steps = 1 << 20;
};

enum class BytesShared : std::uint8_t { kNone, kSome, kUnknown };  // kUnknown: the budget is spent

// Both have 0..8 dims, no negative size or stride, and span less than 2^63 bytes.
BytesShared overlap_of(const Face& a, const Face& b, OverlapBudget& budget) noexcept;

// Whether each stride is larger than the extent of the dims inside it, so that no two elements can meet.
bool is_nested(const Face& face) noexcept;

}  // namespace muster
