// try_network(): whether a network works on this machine, found by using it.
#pragma once

#include "api/base/clock.hpp"
#include "transport/endpoint/endpoint.hpp"

#include <string>

namespace muster::transport {

// What a network is, and that it works between two of its nodes in this process: a message there and back, a
// write into the other's memory and a read from it. kTimeout: it has not done so within `limit`; else the
// Status of what has failed, and as open_network().
Result<std::string> try_network(const std::string& folder, const std::string& name, const Clock& clock,
                                Nanos limit);

}  // namespace muster::transport
