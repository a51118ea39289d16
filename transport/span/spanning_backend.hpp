// The backend of a job that runs on several nodes: loopback inside this node, and the network between nodes.
#pragma once

#include "api/base/clock.hpp"
#include "transport/collective/backend.hpp"
#include "transport/endpoint/endpoint.hpp"
#include "transport/span/spanning_options.hpp"

#include <memory>

namespace muster::transport {

// Its use() must be called before open(); connect() before anything is launched. The clock outlives it.
std::unique_ptr<Backend> spanning_backend(std::unique_ptr<Network> network, SpanningOptions options,
                                          const Clock& clock);

}  // namespace muster::transport
