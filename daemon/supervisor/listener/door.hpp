// Door: the one of the daemon's sockets by which a client has come.
#pragma once

#include <cstdint>

namespace muster::supervisor {

// kRanks: for everybody who may pass through the runtime directory. kControl: for the daemon's user and root.
enum class Door : std::uint8_t { kRanks, kControl };

}  // namespace muster::supervisor
