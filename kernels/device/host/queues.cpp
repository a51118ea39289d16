#include "kernels/device/host/queues.hpp"

#include "api/base/assert.hpp"

#include <utility>

namespace muster::device::host {
namespace {

constexpr std::uint64_t kPartMask = 0xffffffff;

constexpr std::uint64_t claim_word(std::uint32_t generation, std::uint32_t part) {
  return (std::uint64_t{generation} << 32) | part;
}

constexpr unsigned shift_of(Priority priority) {
  return 16 * static_cast<unsigned>(priority);
}

// Hands out the next part, if the slot still has the task of `generation` and that has a part left. Relaxed,
// because the lock under which the caller read the generation has published what the part reads.
bool claim(StreamSlot* slot, std::uint32_t generation, std::uint32_t parts, std::uint32_t* number) {
  std::uint64_t word = slot->claim.load(std::memory_order_relaxed);
  while ((word >> 32) == generation && (word & kPartMask) < parts) {
    if (slot->claim.compare_exchange_weak(word, word + 1, std::memory_order_relaxed)) {
      *number = static_cast<std::uint32_t>(word & kPartMask);
      return true;
    }
  }
  return false;
}

// Number of workers inside parts of the slot's head. A finished part was claimed before, so this order of the
// loads never gives a negative number. Parts begin and end meanwhile, so the number is only a hint.
std::uint32_t served_by(const StreamSlot* slot) {
  const std::uint32_t remaining = slot->remaining.load(std::memory_order_acquire);
  const std::uint64_t handed_out = slot->claim.load(std::memory_order_relaxed) & kPartMask;
  return remaining - (slot->entries.front().task.parts - static_cast<std::uint32_t>(handed_out));
}

void remove_waiter(StreamSlot* source, StreamSlot* waiter) {
  StreamSlot** link = &source->waiters;
  while (*link != nullptr && *link != waiter) link = &(*link)->next;
  if (*link == waiter) *link = waiter->next;
  waiter->next = nullptr;
}

}  // namespace

Queues::Queues(std::uint32_t streams_max, std::uint32_t depth) : streams_max_(streams_max), depth_(depth) {
  MUSTER_ASSERT(streams_max > 0 && streams_max <= kStreamsMax && depth > 0);
}

StreamSlot* Queues::open(Priority priority) {
  if (!streams_free_.empty()) {
    StreamSlot* slot = streams_free_.back();
    streams_free_.pop_back();
    slot->priority = priority;
    slot->open = true;
    return slot;
  }
  if (streams_.size() == streams_max_) return nullptr;
  streams_.push_back(std::make_unique<StreamSlot>(depth_, priority));
  streams_free_.reserve(streams_.size());
  return streams_.back().get();
}

void Queues::close(StreamSlot* slot) {
  MUSTER_ASSERT(slot->open && slot->entries.empty() && slot->waiters == nullptr && !slot->linked);
  slot->open = false;
  slot->dropping = false;
  streams_free_.push_back(slot);
}

EventSlot* Queues::create_event() {
  if (events_free_.empty()) {
    events_.push_back(std::make_unique<EventSlot>());
    events_free_.reserve(events_.size());
    return events_.back().get();
  }
  EventSlot* event = events_free_.back();
  events_free_.pop_back();
  return event;
}

void Queues::destroy_event(EventSlot* event) {
  event->pending.store(0, std::memory_order_release);
  events_free_.push_back(event);
}

Queues::Effect Queues::drop(StreamSlot* slot) {
  slot->dropping = true;
  if (std::exchange(slot->parked, false)) remove_waiter(slot->entries.front().source, slot);
  if (!slot->started) return advance(slot);
  if (slot->linked) unlink(slot);
  const std::uint32_t parts = slot->entries.front().task.parts;
  const std::uint64_t word =
      slot->claim.exchange(claim_word(slot->generation, parts), std::memory_order_relaxed);
  const std::uint32_t unclaimed = parts - static_cast<std::uint32_t>(word & kPartMask);
  if (unclaimed == 0) return {};
  if (slot->remaining.fetch_sub(unclaimed, std::memory_order_acq_rel) == unclaimed) return complete(slot);
  return {};
}

// Sequentially consistent, as Crew::put needs it. A stream that is among the arrivals is not put there twice:
// take_in() clears `arrived` first, and reads the entries after that.
bool Queues::push(StreamSlot* slot, const StreamSlot::Entry& entry) {
  if (!slot->entries.push(entry)) return false;
  if (slot->arrived.exchange(true)) return true;
  StreamSlot* first = arrivals_.load(std::memory_order_relaxed);
  do {
    slot->next_arrival = first;
  } while (!arrivals_.compare_exchange_weak(first, slot));
  return true;
}

Queues::Effect Queues::take_in() {
  Effect effect;
  if (!any_arrived()) return effect;
  StreamSlot* in_order = nullptr;
  for (StreamSlot* slot = arrivals_.exchange(nullptr); slot != nullptr;) {
    StreamSlot* const earlier = std::exchange(slot->next_arrival, in_order);
    in_order = slot;
    slot = earlier;
  }
  while (in_order != nullptr) {
    StreamSlot* const slot = in_order;
    in_order = slot->next_arrival;
    slot->arrived.exchange(false);  // from here on the issuing thread may put it among the arrivals again
    if (!slot->started && !slot->parked) effect.add(advance(slot));
  }
  return effect;
}

bool Queues::push_task(StreamSlot* slot, const Task& task) {
  StreamSlot::Entry entry;
  entry.what = StreamSlot::Entry::What::kTask;
  entry.task = task;
  return push(slot, entry);
}

bool Queues::push_record(StreamSlot* slot, EventSlot* event) {
  if (slot->entries.full()) return false;
  StreamSlot::Entry entry;
  entry.what = StreamSlot::Entry::What::kRecord;
  entry.event = event;
  entry.number = ++event->ticket;
  event->source = slot;
  event->position = slot->entries.pushed() + 1;
  event->pending.store(entry.number, std::memory_order_relaxed);
  return push(slot, entry);
}

bool Queues::push_wait(StreamSlot* slot, const EventSlot* event) {
  // A finished record needs no wait, and neither does a record of the same stream. A relaxed load is enough:
  // the record passed under the lock, and later entries of this stream are taken in under it.
  if (event->pending.load(std::memory_order_relaxed) == 0 || event->source == slot) return true;
  StreamSlot::Entry entry;
  entry.what = StreamSlot::Entry::What::kWait;
  entry.source = event->source;
  entry.number = event->position;
  return push(slot, entry);
}

bool Queues::take(Part* part) {
  for (List& list : ready_) {
    while (list.first != nullptr) {
      StreamSlot* slot = list.least_served();
      const Task& task = slot->entries.front().task;
      unlink(slot);
      std::uint32_t number = 0;
      if (!claim(slot, slot->generation, task.parts, &number)) continue;  // claim_next() handed out all parts
      if (number + 1 < task.parts) link(slot);  // at the end, so that the next equal stream has its turn
      *part = Part{slot, slot->generation, number, slot->priority, task};
      return true;
    }
  }
  return false;
}

// Think of a chain of small tasks beside a task of many parts. If turns alone decided, the worker that ends a
// task of the chain would run a part of the other one first, and the chain would wait for it each time.
// Visits at most as many streams as there are workers, plus one.
StreamSlot* Queues::List::least_served() const noexcept {
  StreamSlot* best = first;
  std::uint32_t fewest = served_by(best);
  for (StreamSlot* slot = best->next_ready; slot != nullptr && fewest > 0; slot = slot->next_ready) {
    const std::uint32_t served = served_by(slot);
    if (served >= fewest) continue;
    fewest = served;
    best = slot;
  }
  return best;
}

bool Queues::claim_next(Part* part) const noexcept {
  const std::uint64_t word = ready_word_.load(std::memory_order_relaxed);
  const unsigned shift = shift_of(part->priority);
  const bool overtaken = (word & ((std::uint64_t{1} << shift) - 1)) != 0;
  const bool shared = ((word >> shift) & 0xffff) > 1;
  if (overtaken || shared || any_arrived()) return false;
  return claim(part->slot, part->generation, part->task.parts, &part->number);
}

std::uint32_t Queues::unclaimed(std::uint32_t enough) const {
  std::uint32_t sum = 0;
  for (const List& list : ready_) {
    for (const StreamSlot* slot = list.first; slot != nullptr && sum < enough; slot = slot->next_ready) {
      const std::uint32_t parts = slot->entries.front().task.parts;
      const std::uint32_t handed_out =
          static_cast<std::uint32_t>(slot->claim.load(std::memory_order_relaxed));
      const std::uint32_t left = parts - handed_out;
      sum = left > enough - sum ? enough : sum + left;
    }
  }
  return sum;
}

Queues::Effect Queues::complete(StreamSlot* slot) {
  MUSTER_ASSERT(slot->started);
  if (slot->linked) unlink(slot);
  slot->started = false;
  slot->entries.pop();
  Effect effect = advance(slot);
  effect.progress = true;
  return effect;
}

// Advances the stream, and every stream that waited for a position that it passes. Uses a worklist instead of
// recursion, because a chain of waits may be as long as the number of streams.
Queues::Effect Queues::advance(StreamSlot* first) {
  Effect effect;
  StreamSlot* work = first;
  first->next = nullptr;
  while (work != nullptr) {
    StreamSlot* slot = work;
    work = slot->next;
    slot->next = nullptr;
    while (!slot->entries.empty() && pass_head(slot, &effect)) {
      slot->entries.pop();
      effect.progress = true;
    }
    const std::uint64_t passed = slot->entries.popped();
    StreamSlot** link = &slot->waiters;
    while (*link != nullptr) {
      StreamSlot* waiter = *link;
      if (waiter->entries.front().number > passed) {
        link = &waiter->next;
        continue;
      }
      *link = waiter->next;
      waiter->parked = false;
      waiter->next = work;
      work = waiter;
    }
  }
  return effect;
}

// Returns true if the stream can pass its head.
bool Queues::pass_head(StreamSlot* slot, Effect* effect) {
  const StreamSlot::Entry& head = slot->entries.front();
  switch (head.what) {
    case StreamSlot::Entry::What::kTask:
      if (head.task.parts == 0 || slot->dropping) return true;
      slot->started = true;
      ++slot->generation;
      slot->remaining.store(head.task.parts, std::memory_order_relaxed);
      slot->claim.store(claim_word(slot->generation, 0), std::memory_order_relaxed);
      link(slot);
      effect->ready = true;
      return false;
    case StreamSlot::Entry::What::kRecord:
      finish_record(slot, head);
      return true;
    case StreamSlot::Entry::What::kWait:
      if (slot->dropping || head.source->entries.popped() >= head.number) return true;
      slot->parked = true;
      slot->next = head.source->waiters;
      head.source->waiters = slot;
      return false;
  }
  return true;
}

void Queues::finish_record(StreamSlot* slot, const StreamSlot::Entry& record) {
  const Instant began = std::exchange(slot->began, Instant{0});
  EventSlot* event = record.event;
  std::uint64_t ticket = record.number;
  if (event->pending.load(std::memory_order_relaxed) != ticket) return;  // recorded again, or destroyed
  event->reached = clock_.now();
  event->began = began == Instant{0} ? event->reached : began;
  // The issuing thread may record the event again at this moment; then it stays pending.
  event->pending.compare_exchange_strong(ticket, 0, std::memory_order_release, std::memory_order_relaxed);
}

void Queues::link(StreamSlot* slot) {
  List& list = ready_[static_cast<std::size_t>(slot->priority)];
  slot->previous_ready = list.last;
  slot->next_ready = nullptr;
  (list.last != nullptr ? list.last->next_ready : list.first) = slot;
  list.last = slot;
  slot->linked = true;
  publish_count(slot->priority, 1);
}

void Queues::unlink(StreamSlot* slot) {
  List& list = ready_[static_cast<std::size_t>(slot->priority)];
  (slot->previous_ready != nullptr ? slot->previous_ready->next_ready : list.first) = slot->next_ready;
  (slot->next_ready != nullptr ? slot->next_ready->previous_ready : list.last) = slot->previous_ready;
  slot->next_ready = slot->previous_ready = nullptr;
  slot->linked = false;
  publish_count(slot->priority, -1);
}

// Only called under the lock, so no atomic read-modify-write is needed.
void Queues::publish_count(Priority priority, std::int64_t change) {
  const std::uint64_t word = ready_word_.load(std::memory_order_relaxed);
  const std::uint64_t step = std::uint64_t{1} << shift_of(priority);
  ready_word_.store(change > 0 ? word + step : word - step, std::memory_order_relaxed);
}

}  // namespace muster::device::host
