// The target of Algorithm::kShared, which all members of the group have mapped, and the part of it that each
// member writes.
#pragma once

#include "api/client/direct/operation.hpp"

#include <cstdint>

namespace muster::client {

struct SharedPart {
  std::uint64_t first;  // byte
  std::uint64_t bytes;
};
// The part of one member, in whole cache lines, so that no two members write the same line.
SharedPart part_of(std::uint64_t total, std::uint64_t members, std::uint64_t index);

// Whether this member's block of an ALL_GATHER has to be copied into the target.
bool brings_block(const DirectPlan& plan);

// Bytes that this member writes into the target.
std::uint64_t shared_bytes(const DirectPlan& plan);

}  // namespace muster::client
