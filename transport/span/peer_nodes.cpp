#include "transport/span/peer_nodes.hpp"

#include "api/base/collective/signature.hpp"
#include "api/base/dtype.hpp"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

namespace muster::transport::span {
PeerNodes::PeerNodes(const PreparedOperation& operation, std::pmr::memory_resource* memory)
    : operation_(operation), nodes_(operation.nodes(), memory) {
  nodes_[operation.here()].takes_part = false;
}

void PeerNodes::Node::say_ready() {
  if (says == Says::kNothing) says = Says::kReady;
  if (says == Says::kRefusal) says = Says::kReadyRefusal;
}

// A node that has forgotten the operation, and had sent its request, has had all that it needed: it had
// agreed. A refusal that came before says more.
void PeerNodes::Node::refuse(Standing standing) {
  const bool was_done = standing == Standing::kGone && request && !refused();
  if (is_ready() || standing == Standing::kReady)
    says = Says::kReadyRefusal;
  else if (standing == Standing::kMoving || was_done)
    says = Says::kAgreedRefusal;
  else if (!refused())
    says = Says::kRefusal;
}

void PeerNodes::came(std::uint32_t node, Request request) {
  if (!nodes_[node].takes_part || nodes_[node].request) return;
  nodes_[node].request = std::move(request);
}

bool PeerNodes::has_come(NodeIndex node) const {
  const auto at = operation_.find(node);
  return at && nodes_[*at].request;
}

bool PeerNodes::balance() const {
  const bool by_pairs = operation_.agrees_by_pairs();
  Hash128 sum = operation_.balance_with(operation_.here());
  for (std::uint32_t node = 0; node < count(); ++node) {
    if (!nodes_[node].takes_part) continue;
    if (by_pairs && !sum.zero()) return false;
    sum += nodes_[node].request->head.balance;
    if (by_pairs) sum += operation_.balance_with(node);
  }
  return sum.zero();
}

bool PeerNodes::all_are_ready() const {
  return std::all_of(nodes_.begin(), nodes_.end(),
                     [](const Node& peer) { return !peer.takes_part || peer.is_ready() || peer.lost; });
}

bool PeerNodes::any_refused_before_it_was_ready() const {
  return std::any_of(nodes_.begin(), nodes_.end(), [](const Node& peer) {
    return peer.takes_part && peer.refused() && !peer.is_ready() && !peer.lost;
  });
}

std::uint64_t PeerNodes::bulk_ahead() const {
  std::uint64_t most = 0;
  for (const Node& peer : nodes_) most = std::max(most, peer.bulk_ahead);
  return most;
}

std::uint64_t PeerNodes::sent_bytes() const {
  std::uint64_t bytes = 0;
  for (const Node& peer : nodes_) bytes += peer.sent_bytes;
  return bytes;
}

std::vector<std::uint32_t> PeerNodes::awaited() const {
  std::vector<std::uint32_t> awaited;
  for (std::uint32_t node = 0; node < count(); ++node)
    if (nodes_[node].takes_part && !nodes_[node].request) operation_.add_members_on(node, awaited);
  std::ranges::sort(awaited);
  return awaited;
}

std::string PeerNodes::difference(const RequestHeader& mine, const std::vector<std::string>& names) const {
  const auto at = [&](std::uint32_t node) { return names[operation_.index_of(node).value]; };
  const std::string self = at(operation_.here());
  for (std::uint32_t node = 0; node < count(); ++node) {
    if (!nodes_[node].takes_part) continue;
    const RequestHeader& theirs = nodes_[node].request->head;
    const auto differ = [&](const char* field, const auto& one, const auto& other) {
      return fmt::format("{}: {} on node {} and {} on node {}", field, one, self, other, at(node));
    };
    if (theirs.op != mine.op) return differ("op", op_name(mine.op), op_name(theirs.op));
    if (theirs.dtype != mine.dtype) return differ("dtype", dtype_name(mine.dtype), dtype_name(theirs.dtype));
    if (theirs.redop != mine.redop) return differ("redop", redop_name(mine.redop), redop_name(theirs.redop));
    if (theirs.root != mine.root) return differ("root", mine.root, theirs.root);
    if (theirs.said_tag != mine.said_tag) return differ("tag", mine.said_tag, theirs.said_tag);
    if (theirs.count != mine.count) return differ("count", mine.count, theirs.count);
    if (std::pair(theirs.shared_memory, theirs.shared_offset) !=
        std::pair(mine.shared_memory, mine.shared_offset))
      return differ("target", target_text(mine.shared_memory, mine.shared_offset),
                    target_text(theirs.shared_memory, theirs.shared_offset));
    if (theirs.common != mine.common)
      return fmt::format("the blocks or the scale of {}, on nodes {} and {}", op_name(mine.op), self,
                         at(node));
  }
  return fmt::format("what two members send to each other in {}", op_name(mine.op));
}

}  // namespace muster::transport::span
