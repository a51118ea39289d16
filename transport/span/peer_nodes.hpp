// PeerNodes: the other nodes of an operation, with their requests and states.
#pragma once

#include "transport/span/prepared_operation.hpp"
#include "transport/span/wire.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory_resource>
#include <optional>
#include <string>
#include <vector>

namespace muster::transport::span {

// Owns    the state of each node that takes part. Thread  that of the network.
// Bound   one request of each node. Fails  never.
class PeerNodes {
 public:
  // The request of another node, which describes the operation.
  struct Request {
    RequestHeader head;
    std::pmr::vector<std::byte> payload;
  };
  // The answers of a node, beside its request. A later one takes back no earlier one.
  enum class Says : std::uint8_t {
    kNothing,
    kReady,
    kRefusal,        // it will not carry it out, and had not agreed, as far as it says
    kReadyRefusal,   // the same, after it was ready
    kAgreedRefusal,  // the same, after it had agreed: its messages through staging have begun
  };
  // After a failure: whether the messages between it and this node have been begun, so that they end.
  enum class Drain : std::uint8_t { kNotYet, kBegins, kOver };
  struct Node {
    bool takes_part = true;  // false: this node
    bool told = false;       // it has this node's request
    bool direct = false;     // agreed: messages between it and this node may go from and to members
    bool lost = false;       // its connection is gone
    Says says = Says::kNothing;
    Drain drain = Drain::kNotYet;
    MessageTag first_tag = 0;  // of the messages to it, beside the request
    std::optional<Request> request;
    bool is_ready() const { return says == Says::kReady || says == Says::kReadyRefusal; }
    bool refused() const { return says >= Says::kRefusal; }
    bool agreed() const { return says == Says::kAgreedRefusal; }
    void say_ready();
    void refuse(Standing standing);
    // The tag of the messages from it. Its request must be there.
    MessageTag received_tag() const { return request->head.first_tag; }
    std::uint64_t sent_bytes = 0;  // of elements, to the node
    // In an urgent operation: bytes of others that the library was sending before a message to the node.
    std::uint64_t bulk_ahead = 0;  // at most, so far
    void sent_after(std::uint64_t bulk) { bulk_ahead = std::max(bulk_ahead, bulk); }
  };

  // Nodes are counted as in the operation, which outlives it; this node is among them.
  PeerNodes(const PreparedOperation& operation, std::pmr::memory_resource* memory);

  std::uint32_t count() const { return static_cast<std::uint32_t>(nodes_.size()); }
  Node& operator[](std::uint32_t node) { return nodes_[node]; }
  const Node& operator[](std::uint32_t node) const { return nodes_[node]; }
  // The node has come. A second request of it is ignored.
  void came(std::uint32_t node, Request request);
  bool has_come(NodeIndex node) const;
  // Whether members receive what others send. All requests are there.
  bool balance() const;
  bool all_are_ready() const;  // but for those that are lost
  bool any_refused_before_it_was_ready() const;
  // The members that it needs and whose nodes have not come.
  std::vector<std::uint32_t> awaited() const;
  std::uint64_t bulk_ahead() const;  // of any node, at most
  std::uint64_t sent_bytes() const;  // of elements, to all nodes
  // The first field in which a node differs from this one. All requests are there.
  std::string difference(const RequestHeader& mine, const std::vector<std::string>& names) const;

 private:
  const PreparedOperation& operation_;
  std::pmr::vector<Node> nodes_;
};

}  // namespace muster::transport::span
