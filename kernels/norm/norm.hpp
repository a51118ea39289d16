// Normalisation over the last dim: root mean square and layer norm, forward and backward.
#pragma once

#include "kernels/kernel.hpp"

namespace muster::kernels::norm {

// Rows in order of op. Parts of a forward are ranges of rows. A backward has these first, for dx, and then
// ranges of columns, for dweight and dbias: each column is summed by one part, in row order.
std::span<const Kernel> rows();

}  // namespace muster::kernels::norm
