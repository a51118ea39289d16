// The backend of a job that runs on several nodes: loopback inside this node, and the network between nodes.
#pragma once

#include "api/base/clock.hpp"
#include "api/base/link_costs.hpp"
#include "transport/collective/backend.hpp"
#include "transport/endpoint/endpoint.hpp"

#include <memory>
#include <string>
#include <vector>

namespace muster::transport {

struct SpanningOptions {
  std::vector<std::string> nodes;  // names, by NodeIndex
  NodeIndex here;
  // Results are the same bits whatever node a member is on: contributions travel apart, and are folded in the
  // order of members.
  bool reproducible = false;
  LinkCosts link = {};  // by which nodes choose algorithms; the same on all
  // From this size on, the bytes of an operation move straight from and to the memory of members. That costs
  // a message to each node and back, and saves copies.
  std::size_t direct_from_bytes = std::size_t{256} << 10;
};

// Its use() must be called before open(); connect() before anything is launched. The clock outlives it.
std::unique_ptr<Backend> spanning_backend(std::unique_ptr<Network> network, SpanningOptions options,
                                          const Clock& clock);

}  // namespace muster::transport
