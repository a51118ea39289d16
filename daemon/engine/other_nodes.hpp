// OtherNodes: what the engines of the job's other nodes have said, and which of them are lost.
#pragma once

#include "api/base/clock.hpp"
#include "daemon/control/job.hpp"
#include "daemon/engine/engine_lock.hpp"
#include "daemon/engine/rank_slots.hpp"
#include "scheduler/run/graph.hpp"
#include "transport/collective/backend.hpp"

#include <utility>
#include <vector>

namespace muster::engine {

// Owns    the losses that the supervisor has not heard of.
// Thread  lose, take_lost: the conductor; they take the engine lock. hear: under it.
// Bound   one loss for each connection that was made.
// Fails   never.
class OtherNodes {
 public:
  OtherNodes(const control::JobSpec& spec, const Clock& clock, EngineLock& lock, scheduler::Graph& graph,
             RankSlots& slots, transport::Backend& backend)
      : spec_(spec), clock_(clock), lock_(lock), graph_(graph), slots_(slots), backend_(backend) {}

  // By which this engine and the others reach each other.
  transport::Backend& backend() { return backend_; }
  // The node is given up. When it returns, groups that have members there have ended the epoch in which they
  // have done something.
  void lose(NodeIndex node, const Status& why);
  // Connections that have ended since the last call, and why.
  std::vector<std::pair<NodeIndex, Status>> take_lost();
  // Ends epochs that have ended on other nodes, and those in use of groups with members on a node that is
  // lost.
  void hear(Instant now);

 private:
  const control::JobSpec& spec_;
  const Clock& clock_;
  EngineLock& lock_;
  scheduler::Graph& graph_;
  RankSlots& slots_;
  transport::Backend& backend_;
  std::vector<std::pair<NodeIndex, Status>> lost_;
};

}  // namespace muster::engine
