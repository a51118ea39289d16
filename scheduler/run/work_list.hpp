// WorkList: starts and ranks that the graph must still look at because of an event.
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
// Bound   none. It takes no heap while no start fails and no more ranks are runnable than were reserved.
// Fails   never.
class WorkList {
 public:
  // Reserves room for so many more runnable ranks.
  void expect(std::size_t ranks) { runnable_.reserve(runnable_.capacity() + ranks); }

  struct Failing {
    Rank rank;
    std::uint32_t lane = 0;
    std::uint64_t value = 0;
    CausePtr cause;
  };
  // These starts waited at a place that has ended.
  void fail(std::span<const Arrival> waited, const CausePtr& cause) {
    for (const Arrival& each : waited) failing_.push_back({each.rank, each.lane, each.value, cause});
  }
  // Starts of the rank may go on.
  void mark_runnable(Rank rank) { runnable_.push_back(rank); }

  // The failing start that was added last; empty: none.
  std::optional<Failing> take_failing() {
    if (failing_.empty()) return std::nullopt;
    Failing failing = std::move(failing_.back());
    failing_.pop_back();
    return failing;
  }
  // The runnable rank that was added first; empty: none.
  std::optional<Rank> take_runnable() {
    if (taken_ < runnable_.size()) return runnable_[taken_++];
    runnable_.clear();
    taken_ = 0;
    return std::nullopt;
  }

 private:
  std::vector<Failing> failing_;
  std::vector<Rank> runnable_;
  std::size_t taken_ = 0;
};

}  // namespace muster::scheduler
