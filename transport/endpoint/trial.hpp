// try_network(): uses a network to find out whether it works on this machine.
#pragma once

#include "api/base/clock.hpp"
#include "transport/endpoint/endpoint.hpp"

#include <string>

namespace muster::transport {

// Checks that a network works between two of its nodes in this process, and describes it: a message, a write
// into the other's memory, and a read from it. kTimeout: that took longer than `limit`; else the Status of
// the operation that failed, or as open_network().
Result<std::string> try_network(const std::string& folder, const std::string& name, const Clock& clock,
                                Nanos limit);

}  // namespace muster::transport
