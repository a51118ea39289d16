// Unsettled: what an event has set going in the graph and is still to be looked at.
#pragma once

#include "scheduler/run/match_queue.hpp"

#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace muster::scheduler {

// Owns    starts that have lost their place, and ranks of which something may go on.
// Thread  one.
// Bound   none; in a turn in which nothing fails no heap is needed for as many ranks as were reserved.
// Fails   never.
class Unsettled {
 public:
  explicit Unsettled(std::size_t ranks) { stirred_.reserve(ranks); }

  struct Failing {
    Rank rank;
    std::uint32_t lane = 0;
    std::uint64_t value = 0;
    CausePtr cause;
  };
  // These waited at a place that has ended.
  void fail(std::span<const MatchQueue::Arrival> waited, const CausePtr& cause) {
    for (const MatchQueue::Arrival& each : waited)
      failing_.push_back({each.rank, each.lane, each.value, cause});
  }
  // Starts of the rank may go on.
  void stir(Rank rank) { stirred_.push_back(rank); }

  // The latest start that fails; nothing if none does.
  std::optional<Failing> take_failing() {
    if (failing_.empty()) return std::nullopt;
    Failing failing = std::move(failing_.back());
    failing_.pop_back();
    return failing;
  }
  // The oldest rank that may go on.
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
