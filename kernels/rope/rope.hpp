// Rotary position embedding: rotates pairs of features by an angle that grows with the global position.
#pragma once

#include <span>

#include "kernels/kernel.hpp"

namespace muster::kernels::rope {

// Rows in order of op. Parts are ranges of positions times ranges of the batch. The angle of a position
// depends on the global position alone, bit for bit, so the shards of a sequence equal the whole.
std::span<const Kernel> rows();

}  // namespace muster::kernels::rope
