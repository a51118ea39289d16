// The number of file descriptors that an engine needs, in any case. The supervisor checks for them at start;
// an engine keeps them free of its ranks' memory.
#pragma once

#include <cstdint>

namespace muster::control {

inline constexpr std::uint64_t kDescriptorsOfProcess = 64;  // standard streams, event loop, device, libraries
// For an engine: socket, pidfd, three segments (one of the direct path), doorbell, and one end of the event
// socket (the client has the other).
inline constexpr std::uint64_t kDescriptorsPerRank = 7;

}  // namespace muster::control
