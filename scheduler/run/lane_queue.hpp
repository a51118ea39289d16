// LaneQueue: the starts of one rank's lane in their order, the lane's timeline, and what failed on it.
#pragma once

#include "api/base/bounded.hpp"
#include "scheduler/run/match_queue.hpp"
#include "scheduler/run/request.hpp"

#include <cstdint>
#include <optional>
#include <vector>

namespace muster::scheduler {

// Owns    its starts. The launched ones are a prefix of the queue.
// Thread  one.
// Bound   `depth` starts; kFailuresKept failures that were reset.
// Fails   never.
class LaneQueue {
 public:
  static constexpr std::size_t kFailuresKept = 64;

  struct Start {
    Request request;
    Stamp stamp;           // of a collective
    bool arrived = false;  // a collective that waits for its peers in the match queue
  };

  explicit LaneQueue(std::uint32_t depth) : queue_(depth) {}

  // ---- starts ----------------------------------------------------------------------------------
  bool full() const { return queue_.full(); }
  std::uint64_t next_value() const { return last_ + 1; }
  // The next value is taken: by a start that fails at once, or by the one that is pushed.
  void skip() { ++last_; }
  void push(Start start, Instant now);
  // The next start: the oldest that is not launched.
  bool has_next() const { return launched_ < queue_.size(); }
  Start& next() { return queue_[launched_]; }
  const Start& next() const { return queue_[launched_]; }
  // The starts that are not launched.
  std::size_t waiting() const { return queue_.size() - launched_; }
  const Start& waiting(std::size_t i) const { return queue_[launched_ + i]; }
  Start take_newest();
  // The oldest start, which is launched if any is.
  const Start* oldest() const { return queue_.empty() ? nullptr : &queue_.front(); }
  bool any_launched() const { return launched_ > 0; }
  bool collective_launched() const { return launched_collective_; }
  void launch_next();
  // The oldest launched start has run. `well`: the timeline reaches its value.
  void finish(std::uint64_t value, bool well);

  // When its next start got there, or arrived, or the last before it was over.
  Instant moved() const { return moved_; }
  void moved_at(Instant now) { moved_ = now; }
  std::uint64_t reached() const { return reached_; }

  // ---- failures --------------------------------------------------------------------------------
  // The lane has failed and was not reset.
  bool stopped() const { return failed_from_ != 0 && failed_to_ == 0; }
  // Of the latest failure.
  const CausePtr& cause() const { return cause_; }
  // Stops before the next start. Returns the first value that will never be reached.
  std::uint64_t stop(CausePtr cause);
  // A launched start has failed. Values from there on are never reached, though later starts may still run.
  // Nothing: the lane was reset since, and only that value has failed.
  std::optional<std::uint64_t> stop_at(std::uint64_t value, CausePtr cause);
  // Runs again. Returns the last value that has failed.
  std::uint64_t resume();
  // Why the lane never reached `value`; nullptr if it has, or may yet.
  const Cause* failure_at(std::uint64_t value) const;
  // Where starts of the lane have failed or were dropped since it stopped, each place once.
  void note(const Place& place);
  const std::vector<Place>& noted() const { return noted_; }

 private:
  struct Failed {  // values that were never reached, and why
    std::uint64_t from = 0;
    std::uint64_t to = 0;
    CausePtr cause;
  };
  void remember(Failed failed);

  BoundedQueue<Start> queue_;
  std::uint32_t launched_ = 0;
  bool launched_collective_ = false;
  Instant moved_{0};
  std::uint64_t last_ = 0;  // value of the newest start
  std::uint64_t reached_ = 0;
  std::uint64_t failed_from_ = 0;  // 0: runs
  std::uint64_t failed_to_ = 0;    // 0 while it is stopped
  CausePtr cause_;
  std::vector<Place> noted_;
  std::vector<Failed> before_;  // failures that were reset, oldest first
};

}  // namespace muster::scheduler
