// Algorithm::kShared: one result for all members, in memory that they share: each brings its part of it, and
// nobody is done before all are.
#pragma once

#include "api/client/direct/operation.hpp"

namespace muster::client {

// Whether this member's block of an ALL_GATHER has to be copied into the shared target.
bool brings_block(const DirectPlan& plan);

// Bytes that this member writes into it.
std::uint64_t shared_bytes(const DirectPlan& plan);

}  // namespace muster::client
