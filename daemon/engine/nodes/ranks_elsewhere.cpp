#include "daemon/engine/nodes/ranks_elsewhere.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

namespace muster::engine {
namespace {

// It is no kind of ControlFence, AgreementMessage or MissingMembers: their messages have their kind at the
// same place.
constexpr std::uint32_t kPresenceKind = 0x48455245;

struct PresenceMessage {
  std::uint64_t attached = 0, reserved = 0;
  std::uint32_t kind = kPresenceKind, reserved_last = 0;
};
static_assert(sizeof(PresenceMessage) == 24);

}  // namespace

RanksElsewhere::RanksElsewhere(const World& world, transport::Backend& backend)
    : world_(world), backend_(backend), nodes_(world.nodes().size()) {}

void RanksElsewhere::tell(NodeIndex node) {
  PresenceMessage word;
  word.attached = here_ ? 1 : 0;
  backend_.tell(node, std::as_bytes(std::span(&word, 1)));
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

bool RanksElsewhere::hear(NodeIndex from, std::uint32_t generation, std::span<const std::byte> word) {
  PresenceMessage said;
  if (word.size() != sizeof said) return false;
  std::memcpy(&said, word.data(), sizeof said);
  if (said.kind != kPresenceKind) return false;
  nodes_[from.value].attached = said.attached != 0;
  nodes_[from.value].said_on = generation;
  return true;
}

bool RanksElsewhere::nobody_elsewhere() const {
  return std::none_of(nodes_.begin(), nodes_.end(), [](const Node& node) { return node.somebody(); });
}

}  // namespace muster::engine
