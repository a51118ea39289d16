// StepOutcome: how one launched step ends. It succeeds unless fail() is called.
//
// Order. Each fail() happens before the step's end, the event that is recorded behind its work. The work
// itself calls fail(), or a thread for which the work waits. Event::query() then makes the failure visible to
// the reader of the outcome, so a step that succeeds costs neither a lock nor a fence.
#pragma once

#include "api/base/status.hpp"

#include <atomic>
#include <utility>

namespace muster::transport {

// Owns    the first failure.
// Thread  fail: any, several at once, until the step's end. All else: the thread that launches the step,
//         before its work is enqueued and after its end.
// Bound   one failure; later ones are ignored.
// Fails   never.
class StepOutcome {
 public:
  void fail(Status why) {
    if (!failed_.exchange(true, std::memory_order_relaxed)) failure_ = std::move(why);
  }
  // nullptr: success.
  const Status* failure() const { return failed_.load(std::memory_order_relaxed) ? &failure_ : nullptr; }
  // Makes the object ready for another step.
  void renew() { failed_.store(false, std::memory_order_relaxed); }

 private:
  std::atomic<bool> failed_{false};
  Status failure_;
};

}  // namespace muster::transport
