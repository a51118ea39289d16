// Linear layers: y = x·wᵀ + b, its gradient by input and its gradient by weight.
#pragma once

#include <span>

#include "kernels/kernel.hpp"

namespace muster::kernels::linear {

// Rows in order of op. Parts are tiles of the output, plus ranges of columns of dbias; each is a product of
// its own, computed by one thread, so its bits do not depend on how many workers there are.
std::span<const Kernel> rows();

}  // namespace muster::kernels::linear
