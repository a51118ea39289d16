// Clock: the only source of time. Monotonic; wall time is for logs alone.
#pragma once

#include "api/base/assert.hpp"

#include <chrono>

namespace muster {

using Nanos = std::chrono::nanoseconds;

// A point of monotonic time, as the span since an origin that is the same for all processes of one boot.
using Instant = std::chrono::nanoseconds;

// `span` after `now`, or the last instant there is if that would lie beyond it: for spans from outside.
constexpr Instant later(Instant now, Nanos span) noexcept {
  return span > Instant::max() - now ? Instant::max() : now + span;
}

// Owns    nothing.
// Thread  any.
// Bound   never goes back.
// Fails   never.
class Clock {
 public:
  virtual ~Clock() = default;
  virtual Instant now() const noexcept = 0;
};

// CLOCK_MONOTONIC.
class SteadyClock final : public Clock {
 public:
  Instant now() const noexcept override;
};

// Time that moves only when told to: for tests and for the simulator.
//
// Owns    its instant.
// Thread  one at a time.
// Bound   never goes back: asserts on a negative advance.
// Fails   never.
class ManualClock final : public Clock {
 public:
  Instant now() const noexcept override { return now_; }
  void advance(Nanos by) noexcept {
    MUSTER_ASSERT(by >= Nanos{0});
    now_ += by;
  }

 private:
  Instant now_{0};
};

}  // namespace muster
