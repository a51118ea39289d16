// Crew: the implementation of a Pool: the lock over the queues, and the state of each worker.
//
// A worker is in one of four states: running a part; looking (polling, yielding, or in a turn of progress);
// asleep on its own bell; or the one sentinel, asleep inside IdleProgress::wait. A thread that rings a worker
// counts it as looking at once, under the lock, so that two threads never count on the same sleeper.
//
// Only the first workers may be meant to work (workers.hpp). Any other one sleeps on its bell as soon as it
// looks up. It may be the only worker that knows of some work. So it makes sure that another one looks, by a
// ring if need be, and the next worker to lie down looks once more.
//
// An issuing thread takes no lock while a worker looks. That worker takes in the arrivals, after its turn of
// progress at the latest, and rings others for parts that it cannot run alone. A worker stops looking when it
// takes a part or goes to sleep. It reads the arrivals after it has left the count `looking_`; an issuing
// thread reads the count after its arrival. So no wake is lost.
#pragma once

#include "api/base/bounded.hpp"
#include "api/base/clock.hpp"
#include "api/base/status.hpp"
#include "kernels/device/host/progress_turns.hpp"
#include "kernels/device/host/queues.hpp"
#include "kernels/device/host/task.hpp"
#include "kernels/device/host/workers.hpp"
#include "kernels/device/idle_progress.hpp"

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <mutex>

namespace muster::device::host {

// Owns    the queues and the workers' states; not the threads.
// Thread  any; serve(): the worker's own.
// Bound   the lock is held for one list operation, never during a part, a turn of progress or a system call.
// Fails   kBusy, kNoResource; kState once stopped.
class Crew {
 public:
  // workers 0: driven by hand; run_once() and the blocking calls run the parts.
  Crew(const PoolOptions& options, std::uint32_t workers);
  Crew(const Crew&) = delete;
  Crew& operator=(const Crew&) = delete;

  Result<StreamSlot*> open_stream(Priority priority);
  // Drops tasks that have not started, and waits for the parts that run. Afterwards no worker touches the
  // stream.
  void close_stream(StreamSlot* slot);
  EventSlot* create_event();
  void destroy_event(EventSlot* event);

  Status submit(StreamSlot* slot, const Task& task);
  Status record(StreamSlot* slot, EventSlot* event);
  Status wait(StreamSlot* slot, const EventSlot* event);
  // Both block. A worker of this crew must not call them, because they may wait for that worker.
  void await_event(const EventSlot* event);
  Status await_stream(StreamSlot* slot);

  // The body of worker thread `index`; returns after stop().
  void serve(std::uint32_t index);
  // Runs one part or one turn of progress on the calling thread; returns how much was done.
  std::size_t run_once();
  // Drops all queued work and makes serve() return. Idempotent.
  void stop();
  bool stopped() const noexcept { return stopping_.load(std::memory_order_acquire); }

  std::uint32_t workers() const noexcept { return workers_.size(); }
  // From now on so many of them work: at least one, at most all. The others sleep after the part that they
  // run.
  void work_with(std::uint32_t workers);

 private:
  // One worker rings at most this many others. They ring more when there are more parts than they can take.
  static constexpr std::size_t kRingMax = 8;
  // The threads to wake: collected under the lock, woken after it.
  struct Wakes {
    BoundedVector<Workers::Worker*, kRingMax> sleepers;
    bool sentinel = false;
    bool progress = false;
  };

  std::unique_lock<std::mutex> brief_lock() const;
  template<class Push>
  Status put(StreamSlot* slot, const char* what, Push&& push);
  template<class Change>
  void apply(Change change);
  Wakes plan(const Queues::Effect& effect, std::uint32_t lookers_min = 0);
  void wake(const Wakes& wakes) noexcept;
  template<class Done>
  void await(Done done);

  bool run_parts(const Workers::Worker& worker);
  bool next_part(const Workers::Worker& worker, Queues::Part* part, bool finished, bool leave);
  bool run_part_by_hand();
  void rest(Workers::Worker& worker);

  const std::uint32_t streams_max_;
  const Nanos spin_;
  SteadyClock clock_;

  mutable std::mutex lock_;
  Queues queues_;
  Workers workers_;
  bool guarded_ =
      false;  // a worker is inside IdleProgress::wait, rung or not; a second one there could take its wake
  bool look_again_ = false;  // a worker that may know of work has left; the next to lie down looks for it
  std::atomic<std::uint32_t> looking_{0};  // changed under the lock, read anywhere
  std::uint32_t blocked_ = 0;              // callers asleep in await()
  std::condition_variable progress_;
  std::atomic<bool> stopping_{false};
  ProgressTurns turns_;
};

}  // namespace muster::device::host
