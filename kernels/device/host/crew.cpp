#include "kernels/device/host/crew.hpp"

#include "api/base/assert.hpp"

#include <algorithm>
#include <utility>

#include <sched.h>

namespace muster::device::host {
namespace {

// The sentinel wakes after this time even if no bell rings. It only bounds the harm of an IdleProgress whose
// bell fails.
constexpr Nanos kSentinelNap{100'000'000};

// The lock is held for well under a microsecond, so a short try is cheaper than a sleep in the kernel.
constexpr int kLockTries = 64;

thread_local const Crew* serving = nullptr;

void relax() noexcept {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace

Crew::Crew(const PoolOptions& options, std::uint32_t workers)
    : streams_max_(options.streams_max),
      spin_(options.spin),
      queues_(options.streams_max, options.depth),
      workers_(workers),
      looking_(workers),
      turns_(options.progress, options.spin) {}

std::unique_lock<std::mutex> Crew::brief_lock() const {
  for (int i = 0; i < kLockTries; ++i) {
    if (lock_.try_lock()) return {lock_, std::adopt_lock};
    relax();
  }
  return std::unique_lock<std::mutex>(lock_);
}

// ---- streams and events ------------------------------------------------------------------------

Result<StreamSlot*> Crew::open_stream(Priority priority) {
  const auto lock = brief_lock();
  if (stopped()) return fail(Code::kState, "no stream can be opened: the pool is closed");
  StreamSlot* slot = queues_.open(priority);
  if (slot == nullptr)
    return fail(Code::kNoResource,
                "all {} host streams are open (streams_max {}); close one or raise the limit", streams_max_,
                streams_max_);
  return slot;
}

void Crew::close_stream(StreamSlot* slot) {
  apply([this, slot] { return queues_.drop(slot); });
  std::unique_lock<std::mutex> lock = brief_lock();
  ++blocked_;
  progress_.wait(lock, [slot] { return slot->entries.empty(); });
  --blocked_;
  queues_.close(slot);
}

EventSlot* Crew::create_event() {
  const auto lock = brief_lock();
  return queues_.create_event();
}

void Crew::destroy_event(EventSlot* event) {
  const auto lock = brief_lock();
  queues_.destroy_event(event);
}

// Changes the queues under the lock, and then wakes whom the effects concern. Not inlined, because an issuing
// thread hardly ever comes here.
template<class Change>
[[gnu::noinline]] void Crew::apply(Change change) {
  Wakes wakes;
  {
    const auto lock = brief_lock();
    wakes = plan(change());
  }
  wake(wakes);
}

// Takes the lock only if no worker looks, or if the stream is full. A full stream may have entries that wait
// for nothing, or that a worker has finished and is about to take out.
template<class Push>
[[gnu::always_inline]] inline Status Crew::put(StreamSlot* slot, const char* what, Push&& push) {
  if (stopped()) return failure(Code::kState, "{} refused: the stream's pool is closed", what);
  const auto take_in = [this] { return queues_.take_in(); };
  bool has_room = push();
  if (!has_room) {
    apply(take_in);
    has_room = push();
  }
  if (!has_room)
    return failure(Code::kBusy,
                   "{} refused: {} pieces of work are in flight, the stream's depth; wait for one", what,
                   slot->entries.capacity());
  // The loads are sequentially consistent, as the arrival before them is, so that no wake is lost (crew.hpp).
  // A crew without workers takes arrivals in when it is driven by hand.
  if (stopping_.load() || (looking_.load() == 0 && workers() > 0)) apply(take_in);
  return {};
}

Status Crew::submit(StreamSlot* slot, const Task& task) {
  return put(slot, "task", [&] { return queues_.push_task(slot, task); });
}

Status Crew::record(StreamSlot* slot, EventSlot* event) {
  return put(slot, "record", [&] { return queues_.push_record(slot, event); });
}

Status Crew::wait(StreamSlot* slot, const EventSlot* event) {
  return put(slot, "wait", [&] { return queues_.push_wait(slot, event); });
}

// Polls for `spin`, then sleeps. In a crew without workers the caller runs the parts first.
template<class Done>
void Crew::await(Done done) {
  if (done()) return;
  MUSTER_ASSERT(serving != this);
  const Instant until = clock_.now() + spin_;
  while (!done()) {
    if (workers() == 0) {
      if (!run_part_by_hand()) break;
    } else {
      if (clock_.now() >= until) break;
      ::sched_yield();
    }
  }
  std::unique_lock<std::mutex> lock = brief_lock();
  ++blocked_;
  progress_.wait(lock, done);
  --blocked_;
}

void Crew::await_event(const EventSlot* event) {
  await([event] { return event->pending.load(std::memory_order_acquire) == 0; });
}

Status Crew::await_stream(StreamSlot* slot) {
  const std::uint64_t target = slot->entries.pushed();
  await([slot, target] { return slot->entries.popped() >= target; });
  if (stopped())
    return failure(Code::kAborted, "the stream's pool was closed; work that had not started was dropped");
  return {};
}

// ---- wakes -------------------------------------------------------------------------------------

// Rings a sleeper for each part that no looking worker will take, and until so many look. The sentinel comes
// first: while a worker polls, threads with new work need not ring bells.
Crew::Wakes Crew::plan(const Queues::Effect& effect, std::uint32_t lookers_min) {
  Wakes wakes;
  wakes.progress = effect.progress && blocked_ > 0;
  if (!effect.ready || !workers_.any_to_rouse()) return wakes;
  const std::uint32_t lookers = std::max(queues_.unclaimed(workers_.working()), lookers_min);
  while (looking_ < lookers) {
    if (workers_.rouse_sentinel()) {
      wakes.sentinel = true;
    } else if (Workers::Worker* sleeper =
                   wakes.sleepers.size() < kRingMax ? workers_.rouse_sleeper() : nullptr) {
      MUSTER_ASSERT(wakes.sleepers.push_back(sleeper));
    } else {
      break;
    }
    ++looking_;
  }
  return wakes;
}

void Crew::wake(const Wakes& wakes) noexcept {
  if (wakes.sentinel) turns_.progress()->wake();
  for (Workers::Worker* worker : wakes.sleepers) worker->bell.notify_one();
  if (wakes.progress) progress_.notify_all();
}

// ---- workers -----------------------------------------------------------------------------------

// A sentinel that is not to work any more leaves its place to another when it wakes.
void Crew::work_with(std::uint32_t workers) {
  apply([this, workers] {
    Queues::Effect effect;
    if (!workers_.set_working(workers)) return effect;
    effect = queues_.take_in();
    effect.ready = true;  // there may be parts for the workers that join
    return effect;
  });
}

void Crew::serve(std::uint32_t index) {
  serving = this;
  Workers::Worker& worker = workers_.of(index);
  Instant idle_since{-1};
  while (!stopped()) {
    if (!workers_.works(worker)) {
      rest(worker);
      idle_since = Instant{-1};
      continue;
    }
    if (turns_.is_due()) (void)turns_.turn();
    if (run_parts(worker) || turns_.turn() > 0) {
      idle_since = Instant{-1};
      continue;
    }
    const Instant now = clock_.now();
    if (idle_since.count() < 0) idle_since = now;
    if (now - idle_since < spin_) {
      ::sched_yield();
      continue;
    }
    rest(worker);
    idle_since = Instant{-1};
  }
  serving = nullptr;
}

// Runs parts until none is ready, a turn of progress is due, or the worker is to leave. Returns false if none
// was ready. Before it goes on with parts that are not urgent, it tells the end of an urgent task, and
// whoever waits for that may have the core. Else it would keep the core until the kernel's next tick, 4 ms
// away.
bool Crew::run_parts(const Workers::Worker& worker) {
  Queues::Part part;
  if (!queues_.any_ready() || !next_part(worker, &part, false, false)) return false;
  for (;;) {
    const bool finished = queues_.run(part);
    const bool urgent_ended = finished && part.priority == Priority::kUrgent;
    const bool leave = turns_.is_due() || stopped() || !workers_.works(worker);
    if (!finished && !leave && queues_.claim_next(&part)) continue;
    if (!next_part(worker, &part, finished, leave)) return true;
    if (urgent_ended && part.priority != Priority::kUrgent) {
      (void)turns_.turn();
      ::sched_yield();
    }
  }
}

// Reports the end of a task and takes the next part, in one hold of the lock. A part without a slot: the
// worker has looked until now.
bool Crew::next_part(const Workers::Worker& worker, Queues::Part* part, bool finished, bool leave) {
  bool more = false;
  apply([&] {
    const bool has_looked = part->slot == nullptr;
    if (has_looked) --looking_;
    Queues::Effect effect;
    if (finished) effect = queues_.complete(part->slot);
    effect.add(queues_.take_in());
    more = !leave && workers_.works(worker) && queues_.take(part);
    if (!more) ++looking_;
    if (has_looked) effect.ready = true;  // more parts may have been ready before than this worker can take
    return effect;
  });
  return more;
}

// Runs one part, for a caller that is not a worker.
bool Crew::run_part_by_hand() {
  if (!queues_.any_ready()) return false;
  Queues::Part part;
  bool found = false;
  apply([&] {
    const Queues::Effect effect = queues_.take_in();
    found = queues_.take(&part);
    return effect;
  });
  if (found && queues_.run(part)) apply([&] { return queues_.complete(part.slot); });
  return found;
}

std::size_t Crew::run_once() {
  MUSTER_ASSERT(workers() == 0);
  return run_part_by_hand() ? 1 : turns_.turn();
}

// Sleeps: as the sentinel if there is none, else on its own bell. Returns at once if a part is ready or work
// came in for progress. Every worker arms first, because a turn of progress may disarm; so when all sleep,
// progress was armed after its last turn. A worker that cannot arm, because another is in one, returns
// and looks again: if a bell has woken it, no other worker knows of the work. One that is not to work leaves
// that to another.
void Crew::rest(Workers::Worker& worker) {
  const bool works = workers_.works(worker);
  const bool armed = turns_.progress() != nullptr && works;
  if (armed && !turns_.arm()) return;
  std::unique_lock<std::mutex> lock = brief_lock();
  if (stopped() || works != workers_.works(worker)) return;
  --looking_;
  if (!works) {
    Queues::Effect effect = queues_.take_in();
    effect.ready = look_again_ = true;
    const Wakes wakes = plan(effect, 1);
    workers_.lie_down(worker);
    lock.unlock();
    wake(wakes);
    lock.lock();
    return Workers::sleep(worker, lock);
  }
  if (queues_.any_arrived() || queues_.unclaimed(1) > 0 || std::exchange(look_again_, false)) {
    ++looking_;
    return;
  }
  if (!armed || guarded_) {
    workers_.lie_down(worker);
    return Workers::sleep(worker, lock);
  }
  workers_.set_sentinel(worker);
  guarded_ = true;
  lock.unlock();
  turns_.progress()->wait(kSentinelNap);
  lock = brief_lock();
  guarded_ = false;
  if (worker.awake) return;
  (void)workers_.rouse_sentinel();
  ++looking_;
}

void Crew::stop() {
  Wakes wakes;
  {
    const auto lock = brief_lock();
    stopping_.store(true);
    wakes.progress = true;
    (void)queues_.take_in();  // a thread that issued and did not see the stop has made its arrival before
    queues_.for_each_open([this](StreamSlot* slot) { (void)queues_.drop(slot); });
    if (workers_.rouse_sentinel()) {
      wakes.sentinel = true;
      ++looking_;
    }
    looking_ += workers_.rouse_all();
  }
  wake(wakes);
}

}  // namespace muster::device::host
