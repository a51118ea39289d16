// RanksElsewhere: whether ranks are attached on the job's other nodes. A run of the job is over when no rank
// is left on any node: its events do not concern the ranks of the next one (scheduler/run/epochs.hpp).
#pragma once

#include "api/base/world.hpp"
#include "daemon/engine/nodes/other_nodes.hpp"
#include "transport/collective/job_links.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace muster::engine {

// Owns    the last report of each node.
// Thread  under the engine lock.
// Bound   a message to each node when the first rank of this one attaches, and when the last has left.
// Fails   never. A disconnected node counts as without ranks, until it reports otherwise.
class RanksElsewhere {
 public:
  RanksElsewhere(const World& world, transport::JobLinks& links);

  // Whether ranks are attached here. A change is sent to the other nodes, after all ends that came before it.
  void set_here(bool attached);
  // A new connection begins without ranks on either side. `nodes`: as of its last look.
  void look(const OtherNodes& nodes);
  // A PresenceMessage of another node.
  void hear(NodeIndex from, std::uint32_t generation, std::span<const std::byte> message);
  bool nobody_elsewhere() const;
  // This engine has taken the place of one that was lost: its ranks may have been there before.
  bool begun_again() const { return begun_again_; }

 private:
  struct Node {
    bool linked = false;
    std::uint32_t generation = 0;  // of its connection
    bool attached = false;         // as it has reported on the connection of that generation:
    std::uint32_t said_on = 0;
    bool somebody() const { return attached && linked && said_on == generation; }
  };
  void tell(NodeIndex node);

  const World world_;
  transport::JobLinks& links_;
  bool here_ = false;
  bool begun_again_ = false;
  std::vector<Node> nodes_;  // by NodeIndex; that of this node is not used
};

}  // namespace muster::engine
