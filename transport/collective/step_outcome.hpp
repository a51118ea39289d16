// StepOutcome: how one launched step ends. It succeeds unless fail() is called. It is over once its work on
// the streams has ended and no work holds it.
//
// Work that goes on outside the streams (a network, another device) holds the outcome: launch() calls hold(),
// and the thread that finishes the work calls release(). Until then the work may touch the step's memory.
//
// Order. fail() happens before the end of the work that calls it: before the event that is recorded behind
// the work, or before release(). Event::query() or over() then makes the failure visible to the reader, so a
// step that succeeds costs neither a lock nor a fence.
#pragma once

#include "api/base/clock.hpp"
#include "api/base/status.hpp"

#include <atomic>
#include <cstdint>
#include <utility>

namespace muster::transport {

// Owns    the first failure.
// Thread  fail, release: any, several at once, until the step's end. All else: the thread that launches the
//         step, before its work is enqueued and after its end; over and held: that thread, at any time.
// Bound   one failure; later ones are ignored.
// Fails   never.
class StepOutcome {
 public:
  void fail(Status why) {
    if (!failed_.exchange(true, std::memory_order_relaxed)) failure_ = std::move(why);
  }
  // nullptr: success.
  const Status* failure() const { return failed_.load(std::memory_order_relaxed) ? &failure_ : nullptr; }

  // Called by launch(), once for each piece of work outside the streams.
  void hold() { holds_.fetch_add(1, std::memory_order_relaxed); }
  // That piece has ended, at `now`, and touches no memory of the step any more. The step's owner may not know
  // it yet: then wake it (the function that CommunicatorFactory::use() was given).
  void release(Instant now) {
    std::int64_t latest = ended_.load(std::memory_order_relaxed);
    while (latest < now.count() &&
           !ended_.compare_exchange_weak(latest, now.count(), std::memory_order_relaxed)) {
    }
    holds_.fetch_sub(1, std::memory_order_release);
  }
  bool over() const { return holds_.load(std::memory_order_acquire) == 0; }
  // When the last hold was released; the beginning of time if there was none.
  Instant released_at() const { return Instant(ended_.load(std::memory_order_relaxed)); }

  // Makes the object ready for another step.
  void renew() {
    failed_.store(false, std::memory_order_relaxed);
    ended_.store(0, std::memory_order_relaxed);
  }

 private:
  std::atomic<bool> failed_{false};
  std::atomic<std::uint32_t> holds_{0};
  std::atomic<std::int64_t> ended_{0};
  Status failure_;
};

}  // namespace muster::transport
