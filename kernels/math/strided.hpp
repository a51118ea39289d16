// copy_face(): elements from one strided view to another, both walked in row-major order.
#pragma once

#include "api/base/collective.hpp"

#include <cstddef>
#include <cstdint>

namespace muster::math {

// Copies elements [first, first + count) of `source`, counted in row-major order, to the same places in that order of
// `target`. The shapes may differ; both views have at least first + count elements. Runs of consecutive elements are copied as
// one. The views do not overlap. `element_bytes` is 1, 2, 4 or 8.
void copy_face(const Face& target, const Face& source, std::size_t element_bytes, std::uint64_t first, std::uint64_t count);

}  // namespace muster::math
