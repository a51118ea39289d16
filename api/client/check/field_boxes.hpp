// The part of an operand that a kernel over a box of a field reads or writes. Its views may hold ghosts that
// this box has nothing to do with.
#pragma once

#include <muster/field_kernels.h>

#include <cstdint>

namespace muster::client {

// The whole operand of any other kernel, and of one whose numbers make no sense: the engine refuses that.
muster_tensor used_part(const muster_kernel& kernel, std::uint32_t operand);

}  // namespace muster::client
