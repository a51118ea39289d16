// LaneQueue: the starts of one rank's lane in order, the lane's timeline, and the lane's failures.
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
// Bound   `depth` starts; Failures::kKept failures that were reset.
// Fails   never.
class LaneQueue {
 public:
  struct Start {
    Request request;
    Stamp stamp;           // of a collective
    bool arrived = false;  // a collective that waits for its peers in the match queue
    // All its work lies on its device's streams. Such a start is launched behind launched ones of its kind,
    // because a stream can wait for another.
    bool on_streams = false;
    std::uint32_t step = 0;    // that it was launched in last: an index of the step table
    std::uint32_t pieces = 0;  // steps in flight that it takes part in; several of an EXCHANGE by neighbours
  };

  // Which values the lane never reached, why, and where its starts have failed.
  class Failures {
   public:
    static constexpr std::size_t kKept = 64;

    // Whether the lane has failed and was not reset.
    bool stopped() const { return from_ != 0 && to_ == 0; }
    // The cause of the latest failure.
    const CausePtr& cause() const { return cause_; }
    // Why the lane never reached `value`; nullptr if it has reached it, or still may.
    const Cause* at(std::uint64_t value) const;
    // The places where the lane's starts have failed or were dropped since it stopped, each place once.
    void note(const Place& place);
    const std::vector<Place>& noted() const { return noted_; }

    // `value`: the first that will never be reached.
    void stop(std::uint64_t value, CausePtr cause);
    // The launched start of `value` has failed. Returns the first value that is never reached; nothing, if
    // the lane was reset since and `value` is among those that failed before the reset.
    std::optional<std::uint64_t> stop_at(std::uint64_t value, CausePtr cause);
    // `last`: the newest value. It has failed too.
    std::uint64_t resume(std::uint64_t last);

   private:
    struct Past {
      std::uint64_t from = 0;
      std::uint64_t to = 0;
      CausePtr cause;
    };
    void remember(Past past);

    std::uint64_t from_ = 0;  // 0: the lane has never failed
    std::uint64_t to_ = 0;    // 0 while the lane is stopped
    CausePtr cause_;
    std::vector<Place> noted_;
    std::vector<Past> before_;  // failures that were reset, oldest first
  };

  explicit LaneQueue(std::uint32_t depth) : queue_(depth) {}

  // ---- starts ----------------------------------------------------------------------------------
  bool full() const { return queue_.full(); }
  std::uint64_t next_value() const { return last_ + 1; }
  // Takes the next value, for a start that fails at once or for one that is then pushed.
  void skip() { ++last_; }
  void push(Start start, Instant now);
  // The next start: the oldest that is not launched.
  bool has_next() const { return in_flight_ < queue_.size(); }
  Start& next() { return queue_[in_flight_]; }
  const Start& next() const { return queue_[in_flight_]; }
  // The starts that are not launched.
  std::size_t waiting() const { return queue_.size() - in_flight_; }
  const Start& waiting(std::size_t i) const { return queue_[in_flight_ + i]; }
  Start take_newest();
  // The oldest start; nullptr: none. Launched starts are older than all others.
  const Start* oldest() const { return queue_.empty() ? nullptr : &queue_.front(); }
  bool any_launched() const { return in_flight_ > 0; }
  bool collective_launched() const { return launched_collective_; }
  // The next start takes part in that step. `whole`: it takes part in no later one, and is launched.
  void launch_next(std::uint32_t step, bool whole);
  // A step of the start has ended. Returns whether the start is over by that: it is launched, and no other
  // step of it is in flight.
  bool end_piece(std::uint64_t value);
  // Removes the oldest launched start, which has ended. `well`: the timeline reaches its value.
  void finish(std::uint64_t value, bool well);

  // When the lane last moved: its next start was pushed or arrived, or an earlier start ended.
  Instant moved() const { return moved_; }
  void moved_at(Instant now) { moved_ = now; }
  std::uint64_t reached() const { return reached_; }
  // The work up to this value has been put on streams, or has ended. A start on streams need not wait for it.
  std::uint64_t launched() const { return launched_; }
  // The launched start of that value; nullptr: it has ended, or is not launched.
  const Start* in_flight(std::uint64_t value) const;
  // Whether that start is the oldest of the lane, launched or not.
  bool is_oldest(std::uint64_t value) const {
    return !queue_.empty() && queue_.front().request.value == value;
  }

  // ---- failures --------------------------------------------------------------------------------
  const Failures& failures() const { return failures_; }
  Failures& failures() { return failures_; }
  // Stops before the next start, or at `failed`, a launched start that has failed; later launched starts may
  // still run. If the lane was reset after that start, it stops again, before its next one. Returns the first
  // value that will never be reached; nothing, without `failed`, if the lane had stopped already.
  std::optional<std::uint64_t> stop(const CausePtr& cause, std::optional<std::uint64_t> failed = {});
  // Lets the lane run again. Returns the last value that has failed.
  std::uint64_t resume() { return failures_.resume(last_); }

 private:
  BoundedQueue<Start> queue_;
  std::uint32_t in_flight_ = 0;  // launched starts
  bool launched_collective_ = false;
  Instant moved_{0};
  std::uint64_t last_ = 0;  // value of the newest start
  std::uint64_t launched_ = 0;
  std::uint64_t reached_ = 0;
  Failures failures_;
};

}  // namespace muster::scheduler
