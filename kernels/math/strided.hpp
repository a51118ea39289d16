// Strided views, walked element by element in row-major order without packing them.
#pragma once

#include "api/base/collective/collective.hpp"

#include <cstddef>
#include <cstdint>

namespace muster::math {

// Copies elements [first, last), counted in row-major order, of one face to the same ones of another with as
// many elements. A run that is contiguous in both is one copy, streamed from `streaming_from` bytes on.
void copy_faces(const Face& target, const Face& source, std::uint64_t first, std::uint64_t last,
                std::size_t element_bytes, std::size_t streaming_from);

}  // namespace muster::math
