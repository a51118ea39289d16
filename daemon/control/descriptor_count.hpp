// How many file descriptors an engine needs whatever its ranks do: what the supervisor asks for at start, and
// what an engine leaves free beside its ranks' memory.
#pragma once

#include <cstdint>

namespace muster::control {

inline constexpr std::uint64_t kDescriptorsOfProcess = 64;  // standard streams, event loop, device, libraries
// Of an engine: socket, pidfd, three segments (one is the direct path's), doorbell, one end of the event
// socket (the other is sent away).
inline constexpr std::uint64_t kDescriptorsPerRank = 7;

}  // namespace muster::control
