// MissingMembers: the members on other nodes that have not come to an operation. An engine whose members wait
// for others of its node tells the engines of the group's other nodes. So the verdict of a deadline names the
// rank, wherever it is passed.
#pragma once

#include "api/base/clock.hpp"
#include "api/base/world.hpp"
#include "scheduler/run/graph.hpp"
#include "transport/collective/job_links.hpp"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <utility>
#include <vector>

namespace muster::engine {

// Owns    the latest report of each place, sent and received.
// Thread  under the engine's lock.
// Bound   the places with an operation that some members wait for here; kHeardMax of other nodes.
// Fails   never. A report that does not arrive is missing.
class MissingMembers {
 public:
  static constexpr Nanos kToldAfter = std::chrono::milliseconds(100);  // while members of a node wait so long
  static constexpr std::size_t kHeardMax = 4096;

  // The references outlive it.
  MissingMembers(World world, const scheduler::Graph& graph, transport::JobLinks& links)
      : world_(std::move(world)), graph_(graph), links_(links) {}

  // Sends what has changed. Call it now and then.
  void tell(Instant now);
  // A message of another engine, which is believed about its own node's members.
  void hear(NodeIndex from, std::span<const std::byte> message);
  // `members`: those of the step's group, as Communicator::awaited() has them.
  std::vector<scheduler::Step::Awaited> awaited(const scheduler::Step& step,
                                                std::span<const std::uint32_t> members) const;

 private:
  // The ranks that the latest operation of a place misses.
  struct Missing {
    std::uint64_t epoch = 0, number = 0;
    std::vector<Rank> ranks;
    friend bool operator==(const Missing&, const Missing&) = default;
  };
  static std::vector<std::byte> message_of(const transport::PlaceKey& place, const Missing& missing,
                                           std::span<const Rank> group);

  const World world_;
  const scheduler::Graph& graph_;
  transport::JobLinks& links_;
  std::map<transport::PlaceKey, Missing> told_;
  std::map<std::pair<NodeIndex, transport::PlaceKey>, Missing> heard_;
};

}  // namespace muster::engine
