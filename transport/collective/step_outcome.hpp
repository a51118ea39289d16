// StepOutcome: how one launched step goes. It goes well unless somebody fails it.
//
// Order. Each fail() happens before the step's end, the event that is recorded behind its work. It is called
// by that work itself, or by a thread for which that work waits. Event::query() then makes it visible to
// whoever reads the outcome, so a step that goes well costs neither a lock nor a fence.
#pragma once

#include "api/base/status.hpp"

#include <atomic>
#include <utility>

namespace muster::transport {

// Owns    what went wrong first.
// Thread  fail: any, several at once, until the step's end. All else: whoever launches the step, before its
//         work is enqueued and after its end.
// Bound   one failure: the first counts.
// Fails   never.
class StepOutcome {
 public:
  void fail(Status why) {
    if (!failed_.exchange(true, std::memory_order_relaxed)) failure_ = std::move(why);
  }
  // nullptr: it went well.
  const Status* failure() const { return failed_.load(std::memory_order_relaxed) ? &failure_ : nullptr; }
  // Of another step from now on.
  void renew() { failed_.store(false, std::memory_order_relaxed); }

 private:
  std::atomic<bool> failed_{false};
  Status failure_;
};

}  // namespace muster::transport
