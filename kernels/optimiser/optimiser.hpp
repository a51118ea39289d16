// The optimiser's step on a shard of the parameters.
#pragma once

#include <span>

#include "kernels/kernel.hpp"

namespace muster::kernels::optimiser {

// Rows in order of op. Parts are ranges of elements; an element's update depends on that element and the
// state alone, so any sharding of the parameters gives the same bits.
std::span<const Kernel> rows();

}  // namespace muster::kernels::optimiser
