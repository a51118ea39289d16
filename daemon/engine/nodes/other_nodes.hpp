// OtherNodes: the reports of the engines on the job's other nodes, and the state of each of them.
#pragma once

#include "api/base/clock.hpp"
#include "daemon/control/job.hpp"
#include "daemon/engine/memory/engine_lock.hpp"
#include "daemon/engine/nodes/control_fence.hpp"
#include "daemon/engine/nodes/survivor_agreement.hpp"
#include "daemon/engine/session/rank_slots.hpp"
#include "scheduler/run/graph.hpp"
#include "transport/collective/job_links.hpp"

#include <cstdint>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

namespace muster::engine {

// Owns    the losses that the supervisor does not know yet, and the supervisor's report on each node.
// Thread  hear, control_fence: under the engine lock. All else: the conductor, and all but look take that
//         lock.
// Bound   one loss for each connection that was made.
// Fails   never.
class OtherNodes {
 public:
  struct Standing {
    NodeFate fate = NodeFate::kApart;
    std::uint32_t generation = 0;  // of the connection
    Status why;                    // it is disconnected
    bool since_birth = false;      // its engine and this one were connected when the job was made
  };
  // A member of the group, or the node of one, is lost elsewhere.
  using Lost = std::function<void(GroupId)>;

  OtherNodes(const control::JobSpec& spec, const Clock& clock, EngineLock& lock, scheduler::Graph& graph,
             RankSlots& slots, transport::JobLinks& links, Lost lost);

  transport::JobLinks& links() { return links_; }
  // Gives the node up. When it returns, groups that have members there have ended the epoch in which they
  // have done something. `fate`: kDead if the node's supervisor has reported the end of its engine.
  void lose(NodeIndex node, const Status& why, NodeFate fate);
  // The node is being connected: reports on its former engine do not hold for this one.
  void expect(NodeIndex node, std::uint32_t generation);
  // Connections that have ended since the last call.
  std::vector<transport::JobLinks::Lost> take_lost();
  // Ends epochs that have ended on other nodes. It also ends the epochs in use of groups that have members on
  // a lost node.
  void hear(Instant now);

  // A question to the other nodes that must be answered before the rank attaches (control_fence.hpp).
  // Nothing: the rank may attach at once.
  std::optional<std::uint64_t> question_for(Rank rank);
  bool answered(std::uint64_t question);
  ControlFence& control_fence() { return control_fence_; }

  // Reads the states of the connections. Not under the engine lock.
  void look();
  // The state at the last look(). It is empty for this node.
  const Standing& of(NodeIndex node) const { return standings_[node.value]; }

 private:
  struct Report {  // of the supervisor
    NodeFate fate = NodeFate::kApart;
    Status why;
  };

  bool has_members(const scheduler::Group& group, NodeIndex node) const;

  const control::JobSpec& spec_;
  const Clock& clock_;
  EngineLock& lock_;
  scheduler::Graph& graph_;
  RankSlots& slots_;
  transport::JobLinks& links_;
  const Lost on_lost_;
  std::vector<transport::JobLinks::Lost> lost_;
  std::vector<Report> reports_;      // by NodeIndex
  std::vector<Standing> standings_;  // by NodeIndex
  ControlFence control_fence_;
};

}  // namespace muster::engine
