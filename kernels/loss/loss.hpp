// Cross-entropy: dense, and over a vocabulary whose columns are spread over ranks.
#pragma once

#include <span>

#include "kernels/kernel.hpp"

namespace muster::kernels::loss {

// Rows in order of op. Parts are ranges of tokens. A target below -1, or without a column in a dense loss,
// gives NaN in its loss and gradient. Targets are data, so no check can refuse them before the run.
std::span<const Kernel> rows();

}  // namespace muster::kernels::loss
