// Convolutions of a field, and their gradients by items and by weights.
#pragma once

#include <span>

#include "kernels/kernel.hpp"

namespace muster::kernels::convolution {

// Rows in order of op. Parts are rows of the box along its outermost spatial dim, of one sample each; of the
// gradient by weights, blocks of outputs. Each is computed by one thread, so its bits do not depend on how
// many workers there are, nor on the box.
std::span<const Kernel> rows();

}  // namespace muster::kernels::convolution
