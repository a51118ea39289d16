// Sums over chosen dims of a view, their gradient, which spreads a view over dims, and products with such a
// view.
#pragma once

#include <span>

#include "kernels/kernel.hpp"

namespace muster::kernels::reduction {

// Rows in order of op. Parts are ranges of what is kept, each computed by one thread in one order, so its
// bits do not depend on how many workers there are.
std::span<const Kernel> rows();

}  // namespace muster::kernels::reduction
