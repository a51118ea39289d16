// SpanningOptions: the facts of a job for operations between its nodes. All but `here` and `memory` are
// common to the nodes.
#pragma once

#include "api/base/ids.hpp"
#include "api/base/memory_budget.hpp"
#include "api/base/nodes/link_costs.hpp"

#include <cstddef>
#include <string>
#include <vector>

namespace muster::transport {

struct SpanningOptions {
  std::vector<std::string> nodes;  // names, by NodeIndex
  NodeIndex here;
  // Results are the same bits whatever node a member is on: contributions travel separately, and are folded
  // in the order of members.
  bool reproducible = false;
  LinkCosts link = {};  // by which nodes choose algorithms; the same on all
  // From this size on, the bytes of an operation move straight from and to the memory of members, if the
  // network gives that back after a loss. It costs a message to each node and back, and saves copies.
  std::size_t direct_from_bytes = 256 << 10;
  MemoryBudget* memory = nullptr;  // for what is prepared, and for early requests; it outlives the transport
};

}  // namespace muster::transport
