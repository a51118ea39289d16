// Clock: the only source of time. Monotonic; wall time is for logs and certificates.
#pragma once

#include <chrono>

namespace muster {

using Nanos = std::chrono::nanoseconds;

// A point of monotonic time, as the span since an origin that is the same for all processes of one boot.
using Instant = std::chrono::nanoseconds;

// `now` + `span`, without overflow: at most Instant::max(). Use it for spans that a user or client chose.
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

}  // namespace muster
