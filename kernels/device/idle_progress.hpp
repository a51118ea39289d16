// The inputs of a pool: the progress of its idle workers, and its size.
#pragma once

#include "api/base/clock.hpp"

#include <cstddef>
#include <cstdint>

namespace muster::device {

// The work of an idle worker between tasks: the engine's turn of progress (drain rings, schedule, publish).
//
// Owns    everything that its implementer needs for a turn.
// Thread  do_work and arm: one worker at a time. wait: any other worker, after arm. wake: any thread, any
//         time; it must not block or take locks that do_work holds. A wake before the wait makes that wait
//         return at once.
// Bound   a turn is short, because no other worker schedules meanwhile.
// Fails   never; the implementer reports the failures of a turn.
//
// One worker at a time is inside wait. An arm may have no wait behind it, and another worker's do_work may
// come between the two. So every worker arms again before it sleeps.
class IdleProgress {
 public:
  virtual ~IdleProgress() = default;
  // One turn; returns how much was done. It does not wait for work, or for a lock that is held for longer
  // than a turn. It may enqueue on streams; that work starts after the turn.
  virtual std::size_t do_work() = 0;
  // Announces that no worker polls, so that threads with new work must ring a bell. Returns false if work
  // came in meanwhile; then the worker must not wait.
  virtual bool arm() = 0;
  // Sleeps until a bell, wake(), or `bound`.
  virtual void wait(Nanos bound) = 0;
  virtual void wake() noexcept = 0;
};

struct PoolOptions {
  static constexpr std::uint32_t kStreamsMax = 32767;

  std::uint32_t workers = 0;         // 0: as many as this process has cores
  std::uint32_t streams_max = 1024;  // at most kStreamsMax
  std::uint32_t depth = 64;  // tasks, records and waits in flight per stream; more are refused with kBusy
  Nanos spin{50'000};        // how long an idle worker polls (yielding) before it sleeps
  IdleProgress* progress = nullptr;  // not owned; outlives the pool
};

}  // namespace muster::device
