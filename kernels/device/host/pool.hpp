// Pool: the few worker threads that serve every host stream, sized to the cores given, so that eight ranks on
// two cores are not oversubscribed (decision D1). An idle worker runs the owner's duty cycle.
#pragma once

#include "kernels/device/device.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>

namespace muster::device::host {

// One piece of host work: `run(context, part)` for part 0..parts-1, each at most once, in any order, on any
// worker. `context` must live until the work has finished. parts 0 is legal: nothing runs.
struct Task {
  void (*run)(const void* context, std::uint32_t part) = nullptr;
  const void* context = nullptr;
  std::uint32_t parts = 1;
};

// What an idle worker does between tasks: the engine's duty cycle (drain rings, schedule, publish).
//
// Owns    whatever its implementer needs for a turn.
// Thread  do_work and arm: one worker at a time, the one on duty. wait: any worker, no longer on duty,
//         after arm. wake: any thread, any time; it must not block or take locks that do_work holds. It
//         sticks: a wake before the wait makes that wait return at once.
// Bound   a turn is short: while it lasts, nobody schedules.
// Fails   never; what goes wrong in a turn is the implementer's to report.
//
// One worker at a time is inside wait. An arm need not be followed by a wait, and a turn of do_work by
// another worker may come between the two; every worker arms again before it sleeps.
class Duty {
 public:
  virtual ~Duty() = default;
  // One turn; returns how much was done. Waits for no work, and for no lock that is held for longer than a
  // turn. May enqueue on streams: that starts, and others are rung for it, after the turn.
  virtual std::size_t do_work() = 0;
  // Announce that nobody polls any more, so that whoever brings work rings a bell. Returns false if work came
  // in meanwhile: then there is no wait.
  virtual bool arm() = 0;
  // Sleep until a bell, wake(), or `bound`.
  virtual void wait(Nanos bound) = 0;
  virtual void wake() noexcept = 0;
};

struct PoolOptions {
  std::uint32_t workers = 0;  // 0: the cores this process may run on
  std::uint32_t streams_max = 1024;
  std::uint32_t depth = 64;  // tasks, records and waits in flight per stream; more is kBusy
  Nanos spin{50'000};        // how long an idle worker polls (yielding) before it sleeps
  Duty* duty = nullptr;      // not owned; outlives the pool
};

// Owns    the worker threads and the queues of all streams opened from it.
// Thread  any; each stream has one issuing thread at a time, or several under one lock of the caller's.
// Bound   workers, streams_max, depth. A running part is never interrupted: keep it under a millisecond.
// Fails   start only (kNoResource: threads).
//
// Order   A free worker takes a part of the most urgent stream that is ready; of equals, of the one that
//         fewest workers serve, in turns: of two workers one stays with a chain beside what is wide. With
//         nothing to run and nobody on duty it does a turn of duty; idle for `spin`, it arms, goes off duty
//         and sleeps. More runnable threads than cores is the normal case: no unbounded spin, ever.
//         Finishing a task never waits for a sleeper: the finishing worker takes the next part or turn of
//         duty itself, and wakes others only for parts it cannot take. Where parts follow each other without
//         a gap, a worker still does a turn of duty once in `spin`, between two parts.
// Blocking  Event::synchronize and Stream::synchronize sleep, so they are a bug on a worker thread; on a
//         manual pool they run the parts themselves. Closing a stream drops what has not started, waits for
//         its running parts, and releases who waited for its records: afterwards no task's context is
//         touched.
class Pool {
 public:
  static Result<std::unique_ptr<Pool>> start(const PoolOptions& options);
  ~Pool();  // joins; work not yet started is dropped, running parts finish
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

  // Joins the workers: nothing runs any more, and no turn of duty is under way. Streams and events may go
  // afterwards.
  void halt();
  std::uint32_t workers() const noexcept;
  // Runs one ready part, or if none is ready one turn of duty, on the calling thread; only for a pool of
  // open_manual. Returns what was done.
  std::size_t run_once();
  // A pool without threads: everything runs inside run_once(), records that wait for nothing too.
  static std::unique_ptr<Pool> open_manual(const PoolOptions& options);

 private:
  friend class HostDevice;
  friend class HostStream;
  struct State;
  explicit Pool(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

// The host Device on a pool. The pool outlives the device; the device outlives its streams.
Result<std::unique_ptr<Device>> open_device(Pool& pool);

// Puts a task on a host stream. kBusy when the stream is full; kBadArgument for a stream of another kind.
Status enqueue(Stream& stream, const Task& task);

}  // namespace muster::device::host
