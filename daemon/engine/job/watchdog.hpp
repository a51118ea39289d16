// Watchdog: notices that the engine's lock is not passed on, and logs it. Then it ends the engine, so that
// its clients see the loss and do not wait for ever. Kernels and collectives run without the lock, so a long
// one is no stall.
#pragma once

#include "api/base/clock.hpp"
#include "api/base/result.hpp"
#include "daemon/engine/memory/engine_lock.hpp"

#include <chrono>
#include <cstdint>
#include <thread>

namespace muster::engine {

// Looks at the engine lock now and then. Between two looks it counts at most its own period: a machine that
// slept, or a process that was stopped, has not been stuck for that time.
//
// Owns    nothing.
// Thread  one.
// Bound   -
// Fails   never.
class StallJudge {
 public:
  static constexpr Nanos kPeriod = std::chrono::milliseconds(100);
  static constexpr Nanos kTellAfter = std::chrono::seconds(1);
  static constexpr Nanos kEndAfter = std::chrono::seconds(5);

  enum class Finding : std::uint8_t { kWell, kTell, kEnd };
  // kTell once for each stall.
  Finding look(std::uint64_t holds, Instant now);
  Nanos stuck_for() const { return stuck_for_; }

 private:
  std::uint64_t holds_ = 0;
  Instant last_{0};
  Nanos stuck_for_{0};
  bool told_ = false;
};

// Owns    a thread that looks, and the signal SIGUSR2, which makes the stuck thread print its stack.
// Thread  made and ended by the engine's conductor.
// Bound   a look each period; writes to standard error only what fits at once.
// Fails   start: kNoResource. A stall of kEndAfter ends the process with kExitCode.
class Watchdog {
 public:
  static constexpr int kExitCode = 70;

  Watchdog(const EngineLock& lock, const Clock& clock) : lock_(lock), clock_(clock) {}
  Status start();

 private:
  void run(const std::stop_token& stop);

  const EngineLock& lock_;
  const Clock& clock_;
  std::jthread thread_;
};

}  // namespace muster::engine
