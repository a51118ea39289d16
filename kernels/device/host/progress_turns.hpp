// ProgressTurns: the turns of progress that a crew's workers do between parts and when they are idle.
#pragma once

#include "api/base/clock.hpp"
#include "kernels/device/idle_progress.hpp"

#include <atomic>
#include <cstddef>
#include <cstdint>

#include <sched.h>

namespace muster::device::host {

// Owns    nothing: the progress is the pool's owner's, and may be none.
// Thread  any worker.
// Bound   one worker at a time is in a turn, or arms.
// Fails   never.
class ProgressTurns {
 public:
  ProgressTurns(IdleProgress* progress, Nanos spin) : progress_(progress), spin_(spin) {}

  IdleProgress* progress() const noexcept { return progress_; }
  // A worker with parts to run must still do turns of progress. Else an urgent command would wait for the end
  // of a long task instead of the end of a part.
  bool is_due() const noexcept {
    return progress_ != nullptr &&
           clock_.now().count() - last_turn_ns_.load(std::memory_order_relaxed) >= spin_.count();
  }
  // One turn, unless another worker is in one. Returns how much was done.
  std::size_t turn() {
    if (progress_ == nullptr || busy_.load(std::memory_order_relaxed) ||
        busy_.exchange(true, std::memory_order_acquire))
      return 0;
    const std::size_t done = progress_->do_work();
    last_turn_ns_.store(clock_.now().count(), std::memory_order_relaxed);
    busy_.store(false, std::memory_order_release);
    return done;
  }
  // Says that no worker polls, so that threads with new work ring. False: look again, because work has come
  // in, or another worker is in a turn.
  bool arm() {
    if (busy_.exchange(true, std::memory_order_acquire)) {
      ::sched_yield();
      return false;
    }
    const bool quiet = progress_->arm();
    busy_.store(false, std::memory_order_release);
    return quiet;
  }

 private:
  IdleProgress* const progress_;
  const Nanos spin_;
  SteadyClock clock_;
  alignas(128) std::atomic<bool> busy_{false};  // a worker is in do_work or arm
  std::atomic<std::int64_t> last_turn_ns_{0};
};

}  // namespace muster::device::host
