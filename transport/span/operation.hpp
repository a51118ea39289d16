// SpanOperation: one launched collective of a group that spans nodes, as this node carries it out. The nodes
// first agree on the operation (decision D7): each sends every other a match request. No byte is written to a
// member's memory before all requests are there and equal. Short contributions travel with the request.
//
// Large data moves straight from and to the memory of members. No such byte moves before every node has
// reported that it is ready: it has all requests, and they are equal. All other data passes through staging,
// and moves as soon as this node has agreed.
//
// In an EXCHANGE nodes agree by pairs: a node asks those alone with which its members share a face. Each pair
// compares the edges between the two, and large faces move once both are ready.
//
// If a node fails later, two nodes drain their messages if one of them has begun. Unsent messages are sent
// empty, and those that come go to memory of their own. So all messages end, no receive stays behind, and the
// memory of members is free again. A node that has agreed knows all lengths, and drains at once. A node that
// has not agreed leaves its members' memory alone at once, but drains only when it knows whether the other
// node has agreed. It asks by its refusal, and the other node answers by its own. The answer kGone says that
// the operation is not there, or not any more. If the other node's request had come before, that node has had
// all that it needed, and so it had agreed.
//
// Operations whose lane is not urgent share the room of a connection (chunk_room.hpp).
//
// There are two kinds of operations: RowOperation, for collectives on whose counts all members agree, and
// PairOperation, for those that agree pair by pair. They know which data moves, and how.
#pragma once

#include "api/base/clock.hpp"
#include "transport/collective/communicator.hpp"
#include "transport/span/host_task.hpp"
#include "transport/span/node_connection.hpp"
#include "transport/span/operation_machine.hpp"
#include "transport/span/peer_nodes.hpp"
#include "transport/span/prepared_operation.hpp"
#include "transport/span/spanning_options.hpp"
#include "transport/span/staging.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <memory_resource>
#include <optional>
#include <span>
#include <vector>

namespace muster::transport::span {

// The objects that operations use; it outlives them.
struct OperationContext {
  std::pmr::memory_resource* memory;  // of the network's thread; for what lives as long as an operation
  const Clock& clock;
  const Instant& now;  // when the present turn began
  Staging& staging;
  std::vector<std::unique_ptr<NodeConnection>>& connections;  // by NodeIndex; null: this node
  const SpanningOptions& options;
  NodeConnection& connection_to(NodeIndex node) const { return *connections[node.value]; }
  // The network's limit: shorter messages pass through staging, so that memory of members comes back.
  std::size_t freed_on_close_from = 0;

  // From so many bytes on it is worth the agreement that it takes to move them from and to members.
  std::size_t direct_from() const { return std::max(options.direct_from_bytes, freed_on_close_from); }
};

// A launch, copied out of the call.
struct Launched {
  std::shared_ptr<PreparedOperation> prepared;
  PreparedOperation::Room* room = nullptr;  // its members; the operation gives it back at its end
  OperationKey key;
  device::Priority priority = device::Priority::kNormal;  // of the lane
  device::Stream* stream = nullptr;                       // for its own work, of that priority
  StepOutcome* outcome = nullptr;

  bool is_urgent() const { return priority == device::Priority::kUrgent; }
};

// Owns    the requests, its flows, and the memory through which its bytes pass; a share of what was prepared.
//         It holds the step's outcome until it touches no memory of its members any more.
// Thread  that of the network.
// Bound   some chunks in flight.
// Fails   by the outcome.
class SpanOperation {
 public:
  virtual ~SpanOperation();

  const Launched& launched() const { return launched_; }
  const PreparedOperation& prepared() const { return *launched_.prepared; }
  // Whether all nodes have come to it, and their requests are equal. False once it has failed.
  bool agreed() const { return machine_.is({State::kReady, State::kMoving, State::kDone}); }
  // Not all nodes have come to it, as far as is known here, and it has not failed.
  bool waits() const { return machine_.is(State::kOpen); }
  // The members' memory is left alone from now on; the outcome is released.
  bool over() const {
    return machine_.is({State::kDone, State::kDraining, State::kDrainingAgreed, State::kPast});
  }
  // It is over, and no message of it is to be sent or received any more.
  bool is_past() const { return machine_.is({State::kDone, State::kPast}); }
  // No message of it is on its way any more.
  bool quiet() const { return rest_.over() && still() == Still::kNothing; }

  // The requests and states of the other nodes. refused() adds to them.
  PeerNodes& peers() { return peers_; }
  // Node `node` will not carry it out: it fails here too, whether it has agreed or not.
  void refused(std::uint32_t node, const Status& why, Standing standing);
  // Ends it with that failure, as soon as no worker touches its members' memory. The nodes that have its
  // request get a refusal.
  void fail(const Status& why) { take(Event::kFail, why); }
  // Goes on as far as it can. Returns how many times something has moved.
  std::size_t advance();
  // When something last moved. Nothing: it has not, or the operation has failed.
  std::optional<Instant> moved_at() const {
    const bool stops = machine_.is({State::kStopping, State::kStoppingAgreed, State::kStopped});
    return stops ? std::nullopt : moved_at_;
  }

 protected:
  SpanOperation(Launched launched, const OperationContext& context);

  // Rest: the messages of a failed operation that begin only so that they end.
  //
  // Owns    memory for the bytes that come, which messages share: it is never read.
  // Thread  that of the network. Bound  memories of rising lengths, the last one of the longest message.
  // Fails   never.
  class Rest {
   public:
    Rest(PeerNodes& peers, const OperationContext& context, const PreparedOperation& operation)
        : peers_(peers), context_(context), operation_(operation) {}
    ~Rest();
    Rest(const Rest&) = delete;
    Rest& operator=(const Rest&) = delete;

    // Message `number` to the node, or from it; nothing, if the node does not drain now.
    void send_empty(std::uint32_t node, std::uint64_t number);
    void receive_unread(std::uint32_t node, std::uint64_t number, std::size_t bytes);
    bool over() const { return flow_.pending == 0; }

   private:
    PeerNodes& peers_;
    const OperationContext& context_;
    const PreparedOperation& operation_;
    Flow flow_;
    std::vector<Staging::Piece> memory_;
  };

  // Moves all data that can be moved; returns how much has. Calls all_moved() at its end.
  virtual std::size_t work() = 0;
  // Begins all remaining messages to and from nodes that drain now. Those to nodes are empty, and those from
  // nodes are not kept. The members and their data may be gone. It does no work after that.
  virtual void drain_rest(Rest& rest) = 0;
  // The part of its work that still goes on: nothing; messages, which touch no memory of members; or more.
  enum class Still : std::uint8_t { kNothing, kMessages, kMore };
  virtual Still still() const = 0;
  // Whether this node would move the data between it and `node` through the memory of members. Where nodes
  // agree by pairs, the other says the same of it; else the operation does so if any node would, and `node`
  // does not matter.
  virtual bool wants_direct(std::uint32_t node) const = 0;
  // Whether messages between this node and another may move; of this node: whether any may. kChecked: each
  // with its checksum, and through staging. kDirect: without, and some from and to the memory of members.
  enum class Moves : std::uint8_t { kNotYet, kChecked, kDirect };
  Moves moves(std::uint32_t node) const {
    const PeerNodes::Node& peer = peers_[node];
    const bool waits = peer.direct && !peer.is_ready() && prepared().agrees_by_pairs();
    if (waits || !machine_.is(State::kMoving)) return Moves::kNotYet;
    return peer.direct ? Moves::kDirect : Moves::kChecked;
  }
  // Whether the flow of a piece of work has ended well. Fails the operation if it has failed.
  bool ended_well(const Flow& flow);
  // The data that goes to the node with the request.
  struct Inline {
    bool ready = true;
    Bytes bytes;
  };
  virtual Inline inline_for(std::uint32_t node) const = 0;
  // Sends the node its message `number`: elements. False: the connection has no room yet; the operation waits
  // there for its turn, and tries again.
  bool send(std::uint32_t node, std::uint64_t number, Bytes elements, Flow& flow);
  void all_moved() { take(Event::kMoved); }

  std::span<const LocalMember> members() const { return launched_.room->members(); }
  NodeConnection& to(std::uint32_t node) { return context_.connection_to(prepared().index_of(node)); }
  const OperationContext& context_;

 private:
  using State = OperationMachine::State;
  using Event = OperationMachine::Event;
  void take(Event event, const Status& why = {});
  void refuse(const Status& why, bool had_agreed);
  std::size_t tell_peers();
  void agree();
  // It has failed, and has yet to drain with some nodes.
  bool drains() const {
    return machine_.is({State::kStopping, State::kStoppingAgreed, State::kDraining, State::kDrainingAgreed});
  }
  std::size_t drain();

  Launched launched_;
  PeerNodes peers_;
  StateMachine<OperationMachine> machine_{kOperation, State::kOpen};
  std::optional<Instant> moved_at_;
  Rest rest_;
};

// kBadArgument: each member of this node that the operation has must be there, once. kUnsupported: a
// reduction has more contributions than one fold takes (math::kReduceSourcesMax), which is so on every node.
Status check_launch(const Span& span, const Collective& c, std::span<const LocalMember> members,
                    bool reproducible);

// The kind of operation that the collective needs.
std::shared_ptr<SpanOperation> begin_operation(Launched launched, const OperationContext& context);
std::shared_ptr<SpanOperation> begin_row_operation(Launched launched, const OperationContext& context);
std::shared_ptr<SpanOperation> begin_pair_operation(Launched launched, const OperationContext& context);

}  // namespace muster::transport::span
