// What a node holds at most, where several floors must say the same.
#pragma once

#include <cstdint>

namespace muster {

// Ranks of a job on one node, and so members of a group there. Members keep a table of one another on the
// stack of each operation; this is its size, and no setting goes beyond it.
inline constexpr std::uint32_t kRanksOnNodeMax = 1024;

}  // namespace muster
