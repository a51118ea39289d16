// ControlFence: hears all that the engines of other nodes had to say at a moment.
//
// A rank that comes back stands in the present epochs of its groups, and so does the first of a new run. The
// end of one may be on its way: a rank of the run before has left on another node. So a rank attaches once
// the other engines have answered: ends are told in order with these words. Whoever attaches after another
// rank's muster_close() has returned hears nothing of that departure.
#pragma once

#include "api/base/clock.hpp"
#include "api/base/world.hpp"
#include "transport/collective/backend.hpp"

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

// Owns    what is waited for, and what it owes to others.
// Thread  the conductor, under the engine's lock.
// Bound   an entry for each question that is open, and one for each node.
// Fails   never: who does not answer in kTime is not waited for.
class ControlFence {
 public:
  static constexpr Nanos kTime = std::chrono::seconds(1);
  // A question is answered so many calls of answer() later: what clients have said before it counts first.
  static constexpr int kAnsweredAfter = 2;

  // `is_linked`: whether this engine is connected with that of the node. The backend outlives it.
  ControlFence(World world, transport::Backend& backend, std::function<bool(NodeIndex)> is_linked)
      : world_(std::move(world)), backend_(backend), is_linked_(std::move(is_linked)) {}

  // Asks all nodes that are linked. Returns the number of the question.
  std::uint64_t ask(Instant now);
  // Whether the question is over: each has answered, is not linked any more, or had its time.
  bool over(std::uint64_t question, Instant now);
  // False: it is another kind of word.
  bool hear(NodeIndex from, std::span<const std::byte> word);
  // To be called after hear(), each few milliseconds while is_open().
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
  void tell(NodeIndex node, std::uint64_t question, std::uint32_t kind);

  const World world_;
  transport::Backend& backend_;
  const std::function<bool(NodeIndex)> is_linked_;
  std::uint64_t asked_ = 0;
  std::map<std::uint64_t, Open> open_;
  std::map<NodeIndex, Owed> owed_;
};

}  // namespace muster::engine
