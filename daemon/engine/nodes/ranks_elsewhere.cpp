#include "daemon/engine/nodes/ranks_elsewhere.hpp"

#include "daemon/engine/nodes/node_messages.hpp"

#include <algorithm>
#include <utility>

namespace muster::engine {

RanksElsewhere::RanksElsewhere(const World& world, transport::JobLinks& links)
    : world_(world), links_(links), nodes_(world.nodes().size()) {}

void RanksElsewhere::tell(NodeIndex node) {
  PresenceMessage message;
  message.attached = here_ ? 1 : 0;
  links_.tell(node, bytes_of_head(message));
}

void RanksElsewhere::set_here(bool attached) {
  if (std::exchange(here_, attached) == attached) return;
  for (std::uint32_t n = 0; n < nodes_.size(); ++n)
    if (NodeIndex(n) != world_.here() && nodes_[n].linked) tell(NodeIndex(n));
}

void RanksElsewhere::look(const OtherNodes& nodes) {
  bool linked_since_birth = false, linked_later = false;
  for (std::uint32_t n = 0; n < nodes_.size(); ++n) {
    if (NodeIndex(n) == world_.here()) continue;
    const OtherNodes::Standing& standing = nodes.of(NodeIndex(n));
    const bool linked = standing.fate == NodeFate::kLinked;
    linked_since_birth |= standing.since_birth;
    linked_later |= linked && !standing.since_birth;
    if (linked == nodes_[n].linked && standing.generation == nodes_[n].generation) continue;
    nodes_[n].linked = linked;
    nodes_[n].generation = standing.generation;
    if (linked && here_) tell(NodeIndex(n));
  }
  begun_again_ = linked_later && !linked_since_birth;
}

void RanksElsewhere::hear(NodeIndex from, std::uint32_t generation, std::span<const std::byte> message) {
  const auto said = read_message<PresenceMessage>(message);
  if (!said) return;
  nodes_[from.value].attached = said->attached != 0;
  nodes_[from.value].said_on = generation;
}

bool RanksElsewhere::nobody_elsewhere() const {
  return std::none_of(nodes_.begin(), nodes_.end(), [](const Node& node) { return node.somebody(); });
}

}  // namespace muster::engine
