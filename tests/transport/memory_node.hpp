// The nodes of a MemoryHub, and the packets under way between them. The lock of MemoryLinks guards all of it.
#pragma once

#include "transport/endpoint/endpoint.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include <sys/eventfd.h>
#include <unistd.h>

namespace muster::transport::test {

struct MemoryConnection;
struct MemoryNode;
using MemoryConnectionRef = std::shared_ptr<MemoryConnection>;

// An operation that an endpoint has begun, until its end was reported.
struct MemoryOperation {
  std::uint64_t number = 0;
  MemoryConnection* connection = nullptr;  // valid until it is over
  Transfer* transfer = nullptr;
  std::byte* data = nullptr;
  std::size_t bytes = 0;  // the requested length; after the end of a receive, the length of its message
  bool receives = false;
  bool over = false;
  Status status;
  std::uint64_t due = 0;  // reported by this call of progress() at the earliest
};
using MemoryOperationRef = std::shared_ptr<MemoryOperation>;

// A packet under way to a node.
struct MemoryPacket {
  enum class Kind : std::uint8_t { kMessage, kPut, kGet, kFlush };
  Kind kind = Kind::kMessage;
  MemoryConnectionRef connection;
  std::uint64_t key = 0;         // of a message: its whole tag
  std::uint64_t generation = 0;  // of a write or read: which memory of the peer, and where
  std::uint64_t offset = 0;
  std::vector<std::byte> kept;   // of a short message or write, whose operation has ended
  MemoryOperationRef operation;  // of all else: it ends when the packet has come
  std::uint64_t number = 0;
  std::uint64_t due = 0;  // comes by this call of progress() at the earliest

  Bytes bytes() const { return operation ? Bytes(operation->data, operation->bytes) : Bytes(kept); }
  bool withdrawn() const { return operation && operation->over; }
};

// One endpoint's side.
struct MemoryConnection {
  MemoryNode* here = nullptr;
  MemoryNode* there = nullptr;
  bool torn = false;  // something was dropped: nothing comes through it any more
  Status failed;
  std::optional<std::uint64_t> noticed;  // that the peer is lost: by this call of progress()
  std::map<std::uint64_t, MemoryOperationRef> open;
};

// A node, from open() on; when it is lost it stays as such.
struct MemoryNode {
  explicit MemoryNode(NodeIndex node) : index(node), bell(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {}
  ~MemoryNode() { close(bell); }
  MemoryNode(const MemoryNode&) = delete;
  MemoryNode& operator=(const MemoryNode&) = delete;

  void ring() const { eventfd_write(bell, 1); }
  // Puts the packets from that node that have come, and were not received, under way again.
  void recall(NodeIndex from) {
    for (auto& [key, packets] : arrived) {
      if (key >> 48 != from.value) continue;
      for (; !packets.empty(); packets.pop_back()) flying.push_front(std::move(packets.back()));
    }
  }

  const NodeIndex index;
  const int bell;
  bool lost = false;
  std::uint64_t calls = 0;  // of progress()
  std::list<MemoryPacket> flying;
  std::map<std::uint64_t, std::deque<MemoryPacket>> arrived;       // and received by nobody yet, by whole tag
  std::map<std::uint64_t, std::deque<MemoryOperationRef>> posted;  // receives, by whole tag
  std::list<MemoryOperationRef> ended;                             // and not told yet
  std::vector<MemoryConnection*> connections;
  std::map<std::uint64_t, WritableBytes> memories;  // registered, by generation
};

// The state of the paths between nodes.
//
// Owns    nothing. Thread  by the lock of MemoryLinks. Bound  a state for each direction. Fails  never.
class MemoryPaths {
 public:
  enum class State : std::uint8_t { kOpen, kHeld, kCut };

  State of(NodeIndex from, NodeIndex to) const {
    const auto found = states_.find({from.value, to.value});
    return found == states_.end() ? State::kOpen : found->second;
  }
  // The state for a packet. A packet that needs an answer needs both directions.
  State of(const MemoryPacket& packet) const {
    const NodeIndex here = packet.connection->here->index;
    const NodeIndex there = packet.connection->there->index;
    return packet.operation ? std::max(of(here, there), of(there, here)) : of(here, there);
  }
  // A cut stays one if it is held too.
  void set(NodeIndex from, NodeIndex to, State state) {
    State& now = states_[{from.value, to.value}];
    now = std::max(now, state);
  }
  void restore(NodeIndex from, NodeIndex to) { states_.erase({from.value, to.value}); }

 private:
  std::map<std::pair<std::uint32_t, std::uint32_t>, State> states_;  // absent: open
};

}  // namespace muster::transport::test
