// Queues: what every host stream still has to do, which of it is ready, and who waits for whom. No thread, no
// lock of its own: the Crew calls it under its lock, except where a function says otherwise.
//
// Who issues takes no lock: it puts an entry on its stream and the stream among the arrivals, and whoever
// next holds the lock takes the arrivals in. So nothing issued is ready, or has passed, before a take_in().
//
// A stream is a position that only grows. A record is a mark at a position of one stream, a wait names such a
// position, so an event may be recorded again, or destroyed, while waits for its earlier life are still
// queued. Waits point to records issued before them: there is no cycle to find.
#pragma once

#include "api/base/clock.hpp"
#include "api/base/spsc_queue.hpp"
#include "kernels/device/device.hpp"
#include "kernels/device/host/task.hpp"

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace muster::device::host {

struct StreamSlot;

// One event. Never freed before its Queues, so a queued record may outlive the Event object: its ticket then
// matches nothing.
struct EventSlot {
  std::atomic<std::uint64_t> pending{
      0};  // ticket of the last record while it is ahead; 0: finished or never recorded
  // The issuer's: ticket of the last record, over all users of the slot, and where that record stands.
  std::uint64_t ticket = 0;
  StreamSlot* source = nullptr;
  std::uint64_t position = 0;
  Instant began{0};  // of the last record that finished: written before `pending` says so
  Instant reached{0};
};

struct Entry {
  enum class What : std::uint8_t { kTask, kRecord, kWait };
  What what = What::kTask;
  Task task;                     // kTask
  EventSlot* event = nullptr;    // kRecord
  StreamSlot* source = nullptr;  // kWait
  std::uint64_t number = 0;      // kRecord: ticket; kWait: position of source
};

// One stream. Never freed before its Queues and its counters never restart, so a worker that holds a pointer
// from before finds that its generation is over, whoever uses the slot now.
struct StreamSlot {
  StreamSlot(std::size_t depth, Priority p) : entries(depth), priority(p) {}

  alignas(128) std::atomic<std::uint64_t> claim{0};  // generation << 32 | next part to hand out
  std::atomic<std::uint32_t> remaining{0};           // parts of the head task that have not finished
  // Put by the issuing thread, taken under the lock: popped() is the position reached, pushed() the last
  // one issued.
  alignas(128) SpscQueue<Entry> entries;
  std::atomic<bool> arrived{false};    // being put among the arrivals, there, or being taken in
  StreamSlot* next_arrival = nullptr;  // the issuer's until it is there, then of whoever holds the lock
  std::uint32_t generation = 0;        // of the task at the head
  Priority priority;
  bool open = true;
  Instant began{0};       // first part since the last record that passed; 0: none yet
  bool dropping = false;  // entries pass without running
  bool started = false;   // the head is a task that was made ready
  bool parked = false;    // the head is a wait, and this in `waiters` of its source
  bool linked = false;    // in the ready list of its priority
  StreamSlot* next_ready = nullptr;
  StreamSlot* previous_ready = nullptr;
  StreamSlot* waiters = nullptr;  // streams whose head waits for a position of this one
  StreamSlot* next = nullptr;     // in `waiters` of another, or in the worklist of advance()
};

// A part that the holder must run and then report as finished.
struct Part {
  StreamSlot* slot = nullptr;
  std::uint32_t generation = 0;
  std::uint32_t number = 0;
  Priority priority = Priority::kLow;  // the stream's: its slot may be another's by the time that this ends
  Task task;
};

// What a change brought about.
struct Effect {
  bool ready = false;     // a task became ready
  bool progress = false;  // a position was passed: blocked callers may look again
  void add(const Effect& more) noexcept {
    ready |= more.ready;
    progress |= more.progress;
  }
};

// Owns    the slots of streams and events, from first use to its own end.
// Thread  under the lock of its Crew; push_* without it, by the stream's issuing thread; any_ready() and
//         claim_next() any.
// Bound   streams_max streams, depth entries each; events as many as live at once.
// Fails   push_* say false when the stream is full.
class Queues {
 public:
  // streams_max at most kStreamsMax.
  static constexpr std::uint32_t kStreamsMax = 32767;
  Queues(std::uint32_t streams_max, std::uint32_t depth);

  StreamSlot* open(Priority priority);  // null when streams_max are open
  // Lets everything pass that has not started. Parts that run still finish; then the stream is empty.
  Effect drop(StreamSlot* slot);
  void close(StreamSlot* slot);  // an empty one; it may still be among the arrivals, and open anew there
  EventSlot* create_event();
  void destroy_event(EventSlot* event);

  bool push_task(StreamSlot* slot, const Task& task);
  bool push_record(StreamSlot* slot, EventSlot* event);
  bool push_wait(StreamSlot* slot, const EventSlot* event);

  // Moves on every stream that something was put on since the last call, in the order of their first.
  Effect take_in();

  // Claims a part of the most urgent ready stream; of equals, of the one that fewest workers serve, in turns.
  // False if there is none.
  bool take(Part* part);
  // The last part of the slot's head has finished: moves the stream on.
  Effect complete(StreamSlot* slot);
  // Unclaimed parts of all ready streams, counted up to `enough`.
  std::uint32_t unclaimed(std::uint32_t enough) const;

  // A hint, without the lock: false if nothing was ready, and nothing had arrived, a moment ago.
  bool any_ready() const noexcept {
    return ready_word_.load(std::memory_order_relaxed) != 0 || any_arrived();
  }
  bool any_arrived() const noexcept { return arrivals_.load() != nullptr; }
  // The next part of the same task, without the lock. False when it is handed out, when a stream of equal or
  // higher priority is ready and should have its turn, or when something has arrived that may be.
  bool claim_next(Part* part) const noexcept;
  // Call right before a part runs. Without the lock: only part 0 writes, and whoever reads has seen all parts
  // of its task finish.
  void note_begin(const Part& part) const noexcept {
    if (part.number == 0 && part.slot->began == Instant{0}) part.slot->began = clock_.now();
  }

  template<class F>
  void for_each_open(F&& f) {
    for (auto& slot : streams_)
      if (slot->open) f(slot.get());
  }

 private:
  bool push(StreamSlot* slot, const Entry& entry);
  Effect advance(StreamSlot* first);
  void pass_entries(StreamSlot* slot, Effect* effect);
  bool pass_head(StreamSlot* slot, Effect* effect);
  void finish_record(StreamSlot* slot, const Entry& record);
  void start_head(StreamSlot* slot);
  void link(StreamSlot* slot);
  void unlink(StreamSlot* slot);
  void publish_count(Priority priority, std::int64_t change);

  struct List {
    StreamSlot* first = nullptr;
    StreamSlot* last = nullptr;
  };
  static constexpr std::size_t kPriorities = 4;
  static StreamSlot* least_served(const List& ready) noexcept;

  const SteadyClock clock_;
  const std::uint32_t streams_max_;
  const std::uint32_t depth_;
  std::vector<std::unique_ptr<StreamSlot>> streams_;
  std::vector<StreamSlot*> streams_free_;
  std::vector<std::unique_ptr<EventSlot>> events_;
  std::vector<EventSlot*> events_free_;
  std::array<List, kPriorities> ready_{};
  std::atomic<std::uint64_t> ready_word_{0};  // streams linked, 16 bits per priority, most urgent lowest
  alignas(128) std::atomic<StreamSlot*> arrivals_{nullptr};  // the last to arrive first
};

}  // namespace muster::device::host
