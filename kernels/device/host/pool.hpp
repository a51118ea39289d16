// Pool: the few worker threads that serve every host stream, sized to the cores given, so that eight ranks on
// two cores are not oversubscribed (decision D1). An idle worker runs the owner's duty cycle.
#pragma once

#include "kernels/device/device.hpp"
#include "kernels/device/host/task.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

namespace muster::device::host {

class Crew;

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
  // For a device, which serves its streams by it.
  const std::shared_ptr<Crew>& crew() const noexcept { return crew_; }

 private:
  Pool(const PoolOptions& options, std::uint32_t workers);

  std::shared_ptr<Crew> crew_;  // together with its devices, streams and events, so none of these dangles
  std::vector<std::thread> threads_;
};

// The host Device on a pool. The pool outlives the device; the device outlives its streams.
Result<std::unique_ptr<Device>> open_device(Pool& pool);

// Puts a task on a host stream. kBusy when the stream is full; kBadArgument for a stream of another kind.
Status enqueue(Stream& stream, const Task& task);

}  // namespace muster::device::host
