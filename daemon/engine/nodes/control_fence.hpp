// ControlFence: waits for all messages that the engines of other nodes had sent by a moment.
//
// A rank that comes back stands in the present epochs of its groups, and so does the first rank of a new run.
// The end of such an epoch may be on its way, because a rank of the run before has left on another node. So a
// rank attaches once the other engines have answered: their ends and answers come in order. A rank that
// attaches after another rank's muster_close() has returned learns nothing of that departure.
#pragma once

#include "api/base/clock.hpp"
#include "api/base/world.hpp"
#include "daemon/engine/nodes/node_messages.hpp"
#include "transport/collective/job_links.hpp"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <span>
#include <utility>
#include <vector>

namespace muster::engine {

// Owns    the open questions, and the answers that it owes to others.
// Thread  the conductor, under the engine's lock.
// Bound   an entry for each question that is open, and one for each node.
// Fails   never: it does not wait for a node that sends no answer in kTime.
class ControlFence {
 public:
  static constexpr Nanos kTime = std::chrono::seconds(1);
  // A question is answered so many calls of answer() later, because earlier commands of clients count first.
  static constexpr int kAnsweredAfter = 2;

  // `is_linked`: whether this engine is connected with that of the node. The links outlive it.
  ControlFence(World world, transport::JobLinks& links, std::function<bool(NodeIndex)> is_linked)
      : world_(std::move(world)), links_(links), is_linked_(std::move(is_linked)) {}

  // Asks all nodes that are connected. Returns the number of the question.
  std::uint64_t ask(Instant now);
  // Whether the question is over: each node has answered, is disconnected, or had its time.
  bool over(std::uint64_t question, Instant now);
  // A FenceMessage of another node.
  void hear(NodeIndex from, std::span<const std::byte> message);
  // Call it after hear(), each few milliseconds while is_open().
  void answer();
  bool is_open() const { return !open_.empty() || !owed_.empty(); }

 private:
  struct Open {
    std::set<NodeIndex> awaited;
    Instant until{0};
  };
  struct Owed {
    std::uint64_t question = 0;  // the latest; it answers the earlier ones too
    int calls = 0;
  };
  void tell(NodeIndex node, std::uint64_t question, NodeMessageKind kind);

  const World world_;
  transport::JobLinks& links_;
  const std::function<bool(NodeIndex)> is_linked_;
  std::uint64_t asked_ = 0;
  std::map<std::uint64_t, Open> open_;
  std::map<NodeIndex, Owed> owed_;
};

}  // namespace muster::engine
