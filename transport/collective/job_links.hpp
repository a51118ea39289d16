// The links seam: the connections between the engines of a job, one engine on each of its nodes. They carry
// the engines' own messages and the ends of epochs. Communicators between nodes may use the same connections,
// or others (communicator_factory.hpp).
#pragma once

#include "api/base/clock.hpp"
#include "api/base/ids.hpp"
#include "api/base/result.hpp"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

namespace muster::transport {

// The end of an epoch of a group that spans nodes: at all of its places, on all of its nodes.
struct EpochEnd {
  std::uint64_t group = 0;  // Span::group
  std::uint64_t epoch = 0;
  Code code = Code::kAborted;
  std::int32_t culprit = -1;  // a rank of the job
  bool loss = false;          // of a member
  std::string text;
};

// The base class itself serves a job without a network: it has no links, and misses none.
//
// Owns    its connections. The engine takes messages and ends in the order in which they came.
// Thread  end, take_ended, take_lost, tell, take_messages, in_use: one at a time, as Communicator::launch.
//         All else: any. Its work is done by the progress() of a CommunicatorFactory.
// Bound   kMessageMax bytes a message.
// Fails   connect: kBadArgument, kNoResource.
class JobLinks {
 public:
  static constexpr std::size_t kMessageMax = (8 << 10) + 64;
  // The state of the connection to one other node.
  struct Link {
    Status status = failure(Code::kPeerLost, "it is not connected");  // kPending: no message has come yet
    std::uint32_t generation = 0;                                     // of this connection or the latest
    Instant heard_at{0};  // when something last came from the node
  };
  // A connection that has ended.
  struct Lost {
    NodeIndex node;
    std::uint32_t generation = 0;  // the node may have a later one by now
    Status why;
  };
  using Messages = std::function<void(NodeIndex, std::uint32_t generation, std::span<const std::byte>)>;

  virtual ~JobLinks() = default;
  // The address at which other engines reach this one; empty: they need none. Two nodes take both addresses
  // anew for each attempt, before either of them connects.
  virtual std::vector<std::byte> address() const { return {}; }
  // Begins to connect to a node of the job. An earlier connection to it is lost by that. Both nodes give the
  // same generation, which no earlier connection of the two has had, so late traffic of an earlier one is
  // refused.
  virtual Status connect(NodeIndex /*node*/, std::span<const std::byte> /*address*/,
                         std::uint32_t /*generation*/) {
    return {};
  }
  virtual Link link(NodeIndex /*node*/) { return {.status = {}}; }
  // The node is given up: operations that need it fail with `why`, and nothing from it is accepted until
  // connect().
  virtual void lose(NodeIndex /*node*/, const Status& /*why*/) {}
  // Calls visit for each connection that has ended since.
  virtual void take_lost(const std::function<void(const Lost&)>& /*visit*/) {}
  // Sends a message to each node that has received none since the last call, so that it knows that this node
  // lives.
  virtual void stay_alive() {}

  // tell: sends a message of this engine to that of another node; in order, and lost with the connection.
  // take_messages: calls visit for those that have come since; the bytes are valid during the call.
  virtual void tell(NodeIndex /*node*/, std::span<const std::byte> /*message*/) {}
  virtual void take_messages(const Messages& /*visit*/) {}

  // Whether nodes have agreed on an operation of the group's present epoch. Then that epoch must end when a
  // node of the group is lost: a node that comes back has not seen the operation.
  virtual bool in_use(std::uint64_t /*group*/) { return false; }
  // The epoch has ended here, by a cause of this node. The other nodes are informed of it, and launches of
  // that epoch that have not met all their nodes fail with it.
  virtual void end(const EpochEnd& /*end*/) {}
  // Calls visit for each end that another node has reported since.
  virtual void take_ended(const std::function<void(const EpochEnd&)>& /*visit*/) {}
};

}  // namespace muster::transport
