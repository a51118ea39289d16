// Loopback: a communicator for members that all live in this address space, on a host device. Sources are
// read in place, targets written in place (decision D4). Chunks of a collective are parts of one task.
#pragma once

#include "transport/collective/communicator_factory.hpp"

#include <cstdint>
#include <memory>

namespace muster::transport {

// A launch runs once, for all members, on the stream of the first member. It need not wait for the other
// streams, because nothing runs on them. A launched step always succeeds.
Result<std::unique_ptr<Communicator>> open_loopback(std::int32_t ranks);
// Makes such communicators, for groups of one node.
std::unique_ptr<CommunicatorFactory> loopback_factory();

}  // namespace muster::transport
