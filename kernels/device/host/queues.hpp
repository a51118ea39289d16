// Queues: the pending entries of every host stream, the ready streams, and which stream waits for which. It
// has no thread and no lock: the Crew calls it under its lock, unless a function says otherwise.
//
// An issuing thread takes no lock. It puts an entry on its stream, and the stream among the arrivals. The
// next holder of the lock takes these in. So an entry is not ready, and does not pass, before a take_in().
//
// A stream has a position that only grows. A record marks a position of its stream, and a wait names such a
// position. So an event may be recorded again, or destroyed, while waits for its earlier record are queued.
// A wait always names a record that was issued before it, so waits form no cycle.
#pragma once

#include "api/base/clock.hpp"
#include "api/base/spsc_queue.hpp"
#include "kernels/device/device.hpp"
#include "kernels/device/host/task.hpp"
#include "kernels/device/idle_progress.hpp"

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace muster::device::host {

struct StreamSlot;

// One event. It lives as long as its Queues, so a queued record may outlive the Event object: its ticket then
// matches nothing.
struct EventSlot {
  std::atomic<std::uint64_t> pending{
      0};  // ticket of the last record while that is pending; 0: finished or never recorded
  // Used by the issuing thread: the ticket of the last record, over all users of the slot, and its position.
  std::uint64_t ticket = 0;
  StreamSlot* source = nullptr;
  std::uint64_t position = 0;
  Instant began{0};  // of the last record that finished; written before `pending` changes
  Instant reached{0};
};

// One stream. It lives as long as its Queues, and its counters never restart. So a worker with an old pointer
// finds that its generation is over, whichever stream uses the slot now.
struct StreamSlot {
  struct Entry {
    enum class What : std::uint8_t { kTask, kRecord, kWait };
    What what = What::kTask;
    Task task;                     // kTask
    EventSlot* event = nullptr;    // kRecord
    StreamSlot* source = nullptr;  // kWait
    std::uint64_t number = 0;      // kRecord: ticket; kWait: position of source
  };

  StreamSlot(std::size_t depth, Priority p) : entries(depth), priority(p) {}

  alignas(128) std::atomic<std::uint64_t> claim{0};  // generation << 32 | next part to hand out
  std::atomic<std::uint32_t> remaining{0};           // parts of the head task that have not finished
  // The issuing thread pushes; the holder of the lock pops. popped() is the position reached, pushed() the
  // last position issued.
  alignas(128) SpscQueue<Entry> entries;
  std::atomic<bool> arrived{false};    // among the arrivals, or on its way into or out of them
  StreamSlot* next_arrival = nullptr;  // written by the issuing thread, then used by the holder of the lock
  std::uint32_t generation = 0;        // of the task at the head
  Priority priority;
  bool open = true;
  Instant began{0};       // first part since the last record that passed; 0: none yet
  bool dropping = false;  // entries pass without running
  bool started = false;   // the head is a task that was made ready
  bool parked = false;    // the head is a wait, and this slot is in `waiters` of its source
  bool linked = false;    // in the ready list of its priority
  StreamSlot* next_ready = nullptr;
  StreamSlot* previous_ready = nullptr;
  StreamSlot* waiters = nullptr;  // streams whose head waits for a position of this one
  StreamSlot* next = nullptr;     // in `waiters` of another slot, or in the worklist of advance()
};

// Owns    the slots of streams and events, from first use to its destruction.
// Thread  under the lock of its Crew; push_* without it, by the stream's issuing thread; any_ready(),
//         claim_next() and run() any.
// Bound   streams_max streams, depth entries each; as many event slots as events ever lived at once.
// Fails   push_* return false when the stream is full.
class Queues {
 public:
  // A part that the holder must run and then report as finished.
  struct Part {
    StreamSlot* slot = nullptr;
    std::uint32_t generation = 0;
    std::uint32_t number = 0;
    Priority priority = Priority::kLow;  // a copy: the slot may have another stream when the part ends
    Task task;
  };
  // The effects of a change.
  struct Effect {
    bool ready = false;     // a task became ready
    bool progress = false;  // a position was passed: blocked callers must look again
    void add(const Effect& more) noexcept {
      ready |= more.ready;
      progress |= more.progress;
    }
  };

  // streams_max at most kStreamsMax.
  static constexpr std::uint32_t kStreamsMax = PoolOptions::kStreamsMax;
  Queues(std::uint32_t streams_max, std::uint32_t depth);

  StreamSlot* open(Priority priority);  // null when streams_max are open
  // Lets all entries pass that have not started. When the running parts have finished, the stream is empty.
  Effect drop(StreamSlot* slot);
  void close(StreamSlot* slot);  // an empty stream; its slot may stay among the arrivals, and be opened again
  EventSlot* create_event();
  void destroy_event(EventSlot* event);

  bool push_task(StreamSlot* slot, const Task& task);
  bool push_record(StreamSlot* slot, EventSlot* event);
  bool push_wait(StreamSlot* slot, const EventSlot* event);

  // Advances each stream that got entries since the last call, in the order of arrival.
  Effect take_in();

  // Claims a part of the most urgent ready stream; of equal ones, of the one that fewest workers serve, then
  // of the next in turn. False: no stream is ready.
  bool take(Part* part);
  // The last part of the slot's head has finished: moves the stream on.
  Effect complete(StreamSlot* slot);
  // Number of unclaimed parts of all ready streams, counted up to `enough`.
  std::uint32_t unclaimed(std::uint32_t enough) const;

  // A hint, without the lock: false if just now no stream was ready and none had arrived.
  bool any_ready() const noexcept {
    return ready_word_.load(std::memory_order_relaxed) != 0 || any_arrived();
  }
  bool any_arrived() const noexcept { return arrivals_.load() != nullptr; }
  // Claims the next part of the same task, without the lock. False if all parts are handed out, if another
  // stream of equal or higher priority is ready and has its turn, or if a stream has arrived.
  bool claim_next(Part* part) const noexcept;
  // Runs the part, without the lock. Returns whether it was the last of its task that has finished. Only part
  // 0 writes when the task began, and a reader has seen all parts finish.
  bool run(const Part& part) const {
    if (part.number == 0 && part.slot->began == Instant{0}) part.slot->began = clock_.now();
    part.task.run(part.task.context, part.number);
    return part.slot->remaining.fetch_sub(1, std::memory_order_acq_rel) == 1;
  }

  template<class F>
  void for_each_open(F&& f) {
    for (auto& slot : streams_)
      if (slot->open) f(slot.get());
  }

 private:
  bool push(StreamSlot* slot, const StreamSlot::Entry& entry);
  Effect advance(StreamSlot* first);
  bool pass_head(StreamSlot* slot, Effect* effect);
  void finish_record(StreamSlot* slot, const StreamSlot::Entry& record);
  void link(StreamSlot* slot);
  void unlink(StreamSlot* slot);
  void publish_count(Priority priority, std::int64_t change);

  struct List {
    StreamSlot* first = nullptr;
    StreamSlot* last = nullptr;
    StreamSlot* least_served() const noexcept;
  };
  static constexpr std::size_t kPriorities = 4;

  const SteadyClock clock_;
  const std::uint32_t streams_max_;
  const std::uint32_t depth_;
  std::vector<std::unique_ptr<StreamSlot>> streams_;
  std::vector<StreamSlot*> streams_free_;
  std::vector<std::unique_ptr<EventSlot>> events_;
  std::vector<EventSlot*> events_free_;
  std::array<List, kPriorities> ready_{};
  std::atomic<std::uint64_t> ready_word_{0};  // number of linked streams, 16 bits a priority, kUrgent lowest
  alignas(128) std::atomic<StreamSlot*> arrivals_{nullptr};  // the latest arrival first
};

}  // namespace muster::device::host
