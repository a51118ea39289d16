// The role of an inherited socket: it may have been kept under a wrong name.
#pragma once

#include "api/shm/descriptor.hpp"

namespace muster::supervisor {

// Whether it is a Unix socket of packets (SOCK_SEQPACKET) that takes connections, or one that is connected.
bool is_listening(const shm::Descriptor& socket);
bool is_connected(const shm::Descriptor& socket);

}  // namespace muster::supervisor
