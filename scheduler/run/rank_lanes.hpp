// RankLanes: the lanes of one local rank, its client timelines, and what its next starts wait for.
#pragma once

#include "api/shm/command.hpp"
#include "api/shm/completion.hpp"
#include "scheduler/run/lane_queue.hpp"

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace muster::scheduler {

// Owns    the rank's lanes.
// Thread  one.
// Bound   the lanes given; shm::kClientTimelinesMax client timelines.
// Fails   signal: kBadArgument.
class RankLanes {
 public:
  RankLanes(std::uint32_t lanes, std::uint32_t depth);

  // ---- its client ------------------------------------------------------------------------------
  // A new client: its lanes start empty at value 0, its client timelines at 0. Launched work of former
  // clients still runs.
  void attached();
  void detached();
  bool present() const { return present_; }
  // Number of clients that the rank has had.
  std::uint32_t generation() const { return generation_; }

  // ---- its lanes -------------------------------------------------------------------------------
  std::uint32_t lanes() const { return static_cast<std::uint32_t>(queues_.size()); }
  LaneQueue& lane(std::uint32_t i) { return queues_[i]; }
  const LaneQueue& lane(std::uint32_t i) const { return queues_[i]; }
  // Parts of launched steps on the lane's stream, of former clients too.
  std::uint32_t running(std::uint32_t i) const { return running_[i]; }
  void launched(std::uint32_t i) { ++running_[i]; }
  void finished(std::uint32_t i) { --running_[i]; }
  // Raises a client timeline. kBadArgument: it would go down, or it does not exist.
  Code signal(std::uint32_t timeline, std::uint64_t value, Instant now);
  // The engine was held up: moves all recorded times up to `moment` later by `lateness`.
  void forgive(Instant moment, Nanos lateness);
  // Whether a collective of that group waits on the lane.
  bool has_submitted(std::uint32_t lane, GroupId group) const;
  // The cause with the oldest fault among the stopped lanes; nullptr: none is stopped.
  CausePtr first_failure() const;

  // ---- what its starts wait for ----------------------------------------------------------------
  enum class Ready : std::uint8_t { kYes, kNo, kFailed };
  // kFailed: *failed says why one of the start's points will never be reached.
  Ready readiness(std::uint32_t lane, const LaneQueue::Start& start, const Cause** failed) const;
  struct Obstacle {
    std::string text;
    std::optional<std::uint32_t> lane;  // the other lane that must move first; empty: no other lane
  };
  Obstacle obstacle(std::uint32_t lane, const LaneQueue::Start& start) const;
  // When the lane's next start passes its deadline: its timeout after the last move of what it waits for.
  // Empty if there is no next start, or while a launched step runs before it.
  std::optional<Instant> deadline(std::uint32_t lane) const;

  // Time during which the compute lane had work, ran none of it, and waited for a collective or another lane.
  Nanos exposed() const { return exposed_; }
  void note_exposure(Instant now);

 private:
  std::optional<Instant> still_since(std::uint32_t lane, std::uint64_t seen) const;

  std::uint32_t depth_;
  std::vector<LaneQueue> queues_;
  std::vector<std::uint32_t> running_;  // by lane
  std::array<std::uint64_t, shm::kClientTimelinesMax> timelines_{};
  std::array<Instant, shm::kClientTimelinesMax> signalled_{};  // when each was raised
  bool present_ = false;
  std::uint32_t generation_ = 0;
  std::optional<Instant> exposed_since_;
  Nanos exposed_{0};
};

}  // namespace muster::scheduler
