// Pool: the worker threads of an engine, which serve all streams of its host devices. Their number is that of
// the granted cores, so that eight ranks do not oversubscribe two cores (decision D1). An idle worker runs
// the owner's progress.
#pragma once

#include "kernels/device/device.hpp"
#include "kernels/device/idle_progress.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

namespace muster::device {
namespace host {
class Crew;
}  // namespace host

// Owns    the worker threads and the queues of all streams opened from it.
// Thread  any; each stream has one issuing thread at a time, or several under one lock of the caller.
// Bound   workers, streams_max, depth. A running part is never interrupted: keep it under a millisecond.
// Fails   start only (kNoResource: threads).
//
// Order   A free worker takes a part of the most urgent ready stream. Among equal streams it takes the one
//         with the fewest workers, then the next in turn. So beside a wide task one of two workers serves a
//         chain of small ones. A worker without a part does a turn of progress, unless another is on
//         progress. Idle for `spin`, it arms and sleeps: threads often outnumber cores, so no spin is
//         unbounded. The end of a task never waits for a sleeper. The finishing worker takes the next part or
//         turn of progress, and wakes others only for parts that it cannot take. A worker that always finds
//         parts still does a turn of progress once in `spin`, between two parts.
// Number  All workers are made at start and work. The owner may let fewer of them work, and more again.
// Blocking  Event::synchronize and Stream::synchronize sleep, so a worker thread must not call them; on a
//         manual pool they run the parts themselves. Closing a stream drops tasks that have not started,
//         waits for its running parts, and releases the threads that wait for its records. Afterwards no
//         worker touches a task's context.
class Pool {
 public:
  static Result<std::unique_ptr<Pool>> start(const PoolOptions& options);
  ~Pool();  // halt(): drops work that has not started, and waits for running parts
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

  // Joins the workers: afterwards no part and no turn of progress runs. Streams and events may be destroyed
  // later.
  void halt();
  std::uint32_t workers() const noexcept;
  // From now on so many of the workers work: at least one, at most all. The others sleep, and do not wake
  // until they are to work again.
  void work_with(std::uint32_t workers);
  // Runs one ready part, or else one turn of progress, on the calling thread. Only for a pool of
  // open_manual(). Returns how much was done.
  std::size_t run_once();
  // A pool without threads: everything runs inside run_once(), also records that wait for nothing.
  static std::unique_ptr<Pool> open_manual(const PoolOptions& options);
  // For a device, whose streams use it.
  const std::shared_ptr<host::Crew>& crew() const noexcept { return crew_; }

 private:
  Pool(const PoolOptions& options, std::uint32_t workers);

  std::shared_ptr<host::Crew>
      crew_;  // shared with its devices, streams and events, so that none of them dangles
  std::vector<std::thread> threads_;
};

}  // namespace muster::device
