// PeerNodes: the other nodes of an operation, with their requests and states.
#pragma once

#include "transport/span/wire.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace muster::transport::span {

// The request of another node, which describes the operation.
struct MatchRequest {
  RequestHeader head;
  std::vector<std::byte> payload;
};

struct PeerNode {
  bool takes_part = false;
  bool told = false;         // it has this node's request
  bool ready = false;        // it has sent kReady
  bool refused = false;      // it will not carry the operation out
  bool agreed = false;       // it has reported that, or must have: its messages through staging have begun
  bool lost = false;         // its connection is gone
  bool drained = false;      // after a failure: messages from and to it have all begun, or there are none
  bool draining = false;     // after a failure: they begin now
  MessageTag first_tag = 0;  // of the messages to it, beside the request
  std::optional<MatchRequest> request;
  // The tag of the messages from it. Its request must be there.
  MessageTag received_tag() const { return request->head.first_tag; }
  // In an urgent operation: bytes of others that the library was sending to the node before a message to it.
  std::uint64_t bulk_ahead = 0;  // at most, so far
  void sent_after(std::uint64_t bulk) { bulk_ahead = std::max(bulk_ahead, bulk); }
};

// Owns    the state of each node of a span. Thread  that of the network.
// Bound   one request of each node. Fails  never.
class PeerNodes {
 public:
  // The span outlives it; the collective is read during the call.
  PeerNodes(const Collective& collective, const Span& span);

  std::uint32_t count() const { return static_cast<std::uint32_t>(nodes_.size()); }
  PeerNode& operator[](std::uint32_t node) { return nodes_[node]; }
  const PeerNode& operator[](std::uint32_t node) const { return nodes_[node]; }
  // The place of a node in the span; nothing: the node has no member.
  std::optional<std::uint32_t> place_of(NodeIndex node) const;

  // The node has come. A second request of it is ignored.
  void came(std::uint32_t node, MatchRequest request);
  bool has_come(NodeIndex node) const;
  bool all_are_ready() const;  // but for those that are lost
  bool any_refused_before_it_was_ready() const;
  // The members on nodes that have not come; in a SEND or RECV the two members alone count.
  std::vector<std::uint32_t> awaited() const;
  std::uint64_t bulk_ahead() const;  // of any node, at most
  // The first field in which a node differs from this one. All requests are there.
  std::string difference(const RequestHeader& mine, const std::vector<std::string>& names) const;

 private:
  const Span& span_;
  std::vector<std::uint32_t> members_;  // that the operation needs
  std::vector<PeerNode> nodes_;         // by node of the span
};

}  // namespace muster::transport::span
