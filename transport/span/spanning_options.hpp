// What the nodes of a job have in common, for operations between them.
#pragma once

#include "api/base/ids.hpp"
#include "api/base/link_costs.hpp"

#include <cstddef>
#include <limits>
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
  // a message to each node and back, and saves copies. Not used by jobs yet: after a loss in one direction an
  // operation that moves so was seen to hold its group for ever.
  std::size_t direct_from_bytes = std::numeric_limits<std::size_t>::max();
};

}  // namespace muster::transport
