// Softmax attention with grouped queries and global positions, forward and backward.
#pragma once

#include <span>

#include "kernels/kernel.hpp"

namespace muster::kernels::attention {

// Rows in order of op. Parts of the forward are ranges of queries of one head. The backward of a small
// problem has a part for each batch entry and key head. A large one is cut into ranges of queries, for dq,
// and ranges of keys, for dkey and dv. It computes the probabilities twice, but has more and shorter parts.
// A worker holds one tile of scores at a time.
std::span<const Kernel> rows();

}  // namespace muster::kernels::attention
