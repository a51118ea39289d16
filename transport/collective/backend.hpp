// The backend seam: makes the communicators of a job, and carries out their work outside the engine's
// workers. Backends: loopback for groups of one node, span for groups of several; later nccl.
//
// A step that goes on outside holds its StepOutcome. Idle workers call progress() while steps are in flight;
// before they sleep they arm the backend, whose descriptor then wakes them.
#pragma once

#include "transport/collective/communicator.hpp"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
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

// The state of a backend's connection to one other node.
struct NodeLink {
  Status status = failure(Code::kPeerLost, "it is not connected");  // kPending: no message has come yet
  std::uint32_t generation = 0;                                     // of this connection or the latest
  Instant heard_at{0};                                              // when something last came from the node
};

// A connection that has ended.
struct LostLink {
  NodeIndex node;
  std::uint32_t generation = 0;  // the node may have a later one by now
  Status why;
};

// Owns    its connections. Communicators refer to it, and end before it.
// Thread  open, use, end, take_ended, take_lost, tell, take_words, in_use: one at a time, as
//         Communicator::launch. progress, arm: any, several at once, never under the engine lock; link calls
//         progress. All else: any.
// Bound   progress: never waits, neither for a peer nor for another caller.
// Fails   open: kNoResource, kBadArgument. connect: kBadArgument, kNoResource.
class Backend {
 public:
  virtual ~Backend() = default;
  // Where its own work between the steps' pieces runs, and how it makes an idle worker call progress().
  // Called once, before open(). The device outlives it.
  virtual Status use(device::Device& /*device*/, std::function<void()> /*wake*/) { return {}; }
  virtual Result<std::unique_ptr<Communicator>> open(const Span& span) = 0;

  // Whether it opens groups that have members on other nodes.
  virtual bool spans() const { return false; }

  // ---- other nodes -----------------------------------------------------------------------------
  // The address at which their backends reach this one; empty: they need none.
  virtual std::vector<std::byte> address() const { return {}; }
  // Begins to connect to a node of the job. An earlier connection to it is lost by that. Both nodes give the
  // same generation, which no earlier connection of the two has had, so late traffic of an earlier one is
  // refused.
  virtual Status connect(NodeIndex /*node*/, std::span<const std::byte> /*address*/,
                         std::uint32_t /*generation*/) {
    return {};
  }
  virtual NodeLink link(NodeIndex /*node*/) { return {.status = {}}; }
  // The node is given up: operations that need it fail with `why`, and nothing from it is accepted until
  // connect().
  virtual void lose(NodeIndex /*node*/, const Status& /*why*/) {}
  // Whether nodes have agreed on an operation of the group's present epoch. Then that epoch must end when a
  // node of the group is lost: a node that comes back has not seen the operation.
  virtual bool in_use(std::uint64_t /*group*/) { return false; }
  // Calls visit for each connection that has ended since.
  virtual void take_lost(const std::function<void(const LostLink&)>& /*visit*/) {}
  // Sends a message to each node that has received none since the last call, so that it knows that this node
  // lives.
  virtual void stay_alive() {}
  // tell: sends a message of this engine to that of another node, of at most kEngineWordMax bytes; in order,
  // and lost with the connection. take_words: calls visit for the messages that have come since; the bytes
  // are valid during the call.
  static constexpr std::size_t kEngineWordMax = (8 << 10) + 64;
  virtual void tell(NodeIndex /*node*/, std::span<const std::byte> /*word*/) {}
  virtual void take_words(
      const std::function<void(NodeIndex, std::uint32_t generation, std::span<const std::byte>)>& /*visit*/) {
  }
  // The epoch has ended here, by a cause of this node. The other nodes are informed of it, and launches of
  // that epoch that have not met all their nodes fail with it.
  virtual void end(const EpochEnd& /*end*/) {}
  // Calls visit for each end that another node has reported since.
  virtual void take_ended(const std::function<void(const EpochEnd&)>& /*visit*/) {}

  // ---- progress --------------------------------------------------------------------------------
  // Moves all that can be moved, and releases steps that have ended. Returns how much it has done.
  virtual std::size_t progress() { return 0; }
  // False: progress() has something to do. True: descriptor() becomes readable once it has.
  virtual bool arm() { return true; }
  // -1: it does all its work on the workers.
  virtual int descriptor() const { return -1; }
};

}  // namespace muster::transport
