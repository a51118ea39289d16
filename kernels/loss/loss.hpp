// Cross-entropy: dense, and over a vocabulary whose columns are spread over ranks.
#pragma once

#include "kernels/kernel.hpp"

namespace muster::kernels::loss {

// Rows in order of op. Parts are ranges of tokens. A target that names no column where all columns are known
// (dense), or is below -1 anywhere, gives NaN in its loss and gradient: it is data, so no check can refuse it
// before the run.
std::span<const Kernel> rows();

}  // namespace muster::kernels::loss
