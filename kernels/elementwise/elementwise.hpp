// copy, fill, axpby, and the reductions to a scalar that clipping needs.
#pragma once

#include <span>

#include "kernels/kernel.hpp"

namespace muster::kernels::elementwise {

// Rows in order of op. Parts are ranges of elements in row-major order. The sums of a reduction's parts are
// folded in their order. So its result depends on the elements and their order alone, not on their strides
// or on the worker of a part.
std::span<const Kernel> rows();

}  // namespace muster::kernels::elementwise
