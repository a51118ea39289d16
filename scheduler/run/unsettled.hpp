// Unsettled: starts and ranks that the graph must still look at because of an event.
#pragma once

#include "scheduler/run/match_queue.hpp"

#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace muster::scheduler {

// Owns    starts whose place has ended, and ranks whose starts may go on.
// Thread  one.
// Bound   none. It takes no heap while no start fails and no more ranks are stirred than were reserved.
// Fails   never.
class Unsettled {
 public:
  // Reserves room for so many more stirred ranks.
  void expect(std::size_t ranks) { stirred_.reserve(stirred_.capacity() + ranks); }

  struct Failing {
    Rank rank;
    std::uint32_t lane = 0;
    std::uint64_t value = 0;
    CausePtr cause;
  };
  // These starts waited at a place that has ended.
  void fail(std::span<const MatchQueue::Arrival> waited, const CausePtr& cause) {
    for (const MatchQueue::Arrival& each : waited)
      failing_.push_back({each.rank, each.lane, each.value, cause});
  }
  // Starts of the rank may go on.
  void stir(Rank rank) { stirred_.push_back(rank); }

  // The failing start that was added last; empty: none.
  std::optional<Failing> take_failing() {
    if (failing_.empty()) return std::nullopt;
    Failing failing = std::move(failing_.back());
    failing_.pop_back();
    return failing;
  }
  // The stirred rank that was added first; empty: none.
  std::optional<Rank> take_stirred() {
    if (taken_ < stirred_.size()) return stirred_[taken_++];
    stirred_.clear();
    taken_ = 0;
    return std::nullopt;
  }

 private:
  std::vector<Failing> failing_;
  std::vector<Rank> stirred_;
  std::size_t taken_ = 0;
};

}  // namespace muster::scheduler
