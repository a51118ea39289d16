// Activations: exact GELU and SwiGLU, forward and backward, over any views of one shape.
#pragma once

#include <span>

#include "kernels/kernel.hpp"

namespace muster::kernels::activation {

// Rows in order of op. Parts are ranges of elements in row-major order.
std::span<const Kernel> rows();

}  // namespace muster::kernels::activation
