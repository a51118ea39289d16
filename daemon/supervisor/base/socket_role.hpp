// The role of an inherited socket: it may have been kept under a wrong name.
#pragma once

#include "api/shm/descriptor.hpp"

namespace muster::supervisor {

enum class SocketRole { kListens, kIsConnected };

// Whether it is a Unix socket of packets (SOCK_SEQPACKET) in that role.
bool has_role(const shm::Descriptor& socket, SocketRole role);

}  // namespace muster::supervisor
