// Limits of a node that several floors must share.
#pragma once

#include <cstdint>

namespace muster {

// Ranks of a job on one node, and so members of a group there. Each operation keeps a table of its members on
// the stack: this is the table's size, and no setting may exceed it.
inline constexpr std::uint32_t kRanksOnNodeMax = 1024;

}  // namespace muster
