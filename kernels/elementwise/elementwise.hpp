// copy, fill, axpby, and the reductions to a scalar that clipping needs.
#pragma once

#include "kernels/kernel.hpp"

namespace muster::kernels::elementwise {

// Rows in order of op. Parts are ranges of elements in row-major order; a reduction to a scalar is one part,
// and its result depends on the elements and their order alone, not on their strides.
std::span<const Kernel> rows();

}  // namespace muster::kernels::elementwise
