// Normalisation over the last dim: root mean square and layer norm, forward and backward.
#pragma once

#include <span>

#include "kernels/kernel.hpp"

namespace muster::kernels::norm {

// Rows in order of op. Parts of a forward are ranges of rows. Parts of a backward are ranges of rows, for dx,
// then ranges of columns, for dweight and dbias. One part sums a column, in row order.
std::span<const Kernel> rows();

}  // namespace muster::kernels::norm
