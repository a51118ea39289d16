// The transport of a job that runs on several nodes: the links between its engines, and the communicators of
// groups that span nodes. Both use the same connections.
#pragma once

#include "api/base/clock.hpp"
#include "transport/collective/communicator_factory.hpp"
#include "transport/endpoint/endpoint.hpp"
#include "transport/span/spanning_options.hpp"

#include <memory>

namespace muster::transport {

// One factory. CommunicatorFactory::use() must be called first, and JobLinks::connect() before anything is
// launched. The clock outlives it.
JobTransport spanning_transport(std::unique_ptr<Network> network, SpanningOptions options,
                                const Clock& clock);

}  // namespace muster::transport
