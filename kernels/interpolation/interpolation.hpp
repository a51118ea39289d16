// Interpolation of a field that is cut over ranks, and its gradient.
#pragma once

#include <span>

#include "kernels/kernel.hpp"

namespace muster::kernels::interpolation {

// Rows in order of op. Parts are rows of the box along its outermost spatial dim, of one sample each.
std::span<const Kernel> rows();

}  // namespace muster::kernels::interpolation
