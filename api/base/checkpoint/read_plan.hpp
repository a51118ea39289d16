// The read plan: which slices of which saved boxes a rank needs, whatever mesh has saved them.
#pragma once

#include "api/base/checkpoint/saved.hpp"
#include "api/base/layout/layout.hpp"

#include <cstdint>
#include <span>
#include <vector>

namespace muster::checkpoint {

// The part of a saved box that a rank needs.
struct Slice {
  std::size_t box = 0;  // its place in SavedTensor::boxes
  Box part;             // of the tensor
  Index within{};       // its first element, in the saved box
  Index put{};          // its first element, in the rank's array
  friend bool operator==(const Slice&, const Slice&) = default;
};

// In the order in which the boxes lie in their files. Each element of the pieces comes from one slice.
std::vector<Slice> plan_read(const SavedTensor& saved, std::span<const Layout::Piece> pieces);

// Whether a tensor that a rank wants is the saved one. Errors: kBadArgument with both dtypes, or both shapes.
Status check_same(const SavedTensor& saved, muster_dtype dtype, std::span<const std::int64_t> shape);

}  // namespace muster::checkpoint
