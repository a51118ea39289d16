// Embedding: rows of a vocabulary shard by id, and the gradient of the shard.
#pragma once

#include <span>

#include "kernels/kernel.hpp"

namespace muster::kernels::embedding {

// Rows in order of op. Forward parts are ranges of tokens. Backward parts are tiles of the table (a range of
// rows by a range of columns). Each part walks all tokens in order, so the order of a row's sum does not
// depend on how the table is cut or sharded.
std::span<const Kernel> rows();

}  // namespace muster::kernels::embedding
