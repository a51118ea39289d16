#include "api/client/direct/channel.hpp"

#include "api/base/assert.hpp"
#include "api/base/fault_point.hpp"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <utility>

namespace muster::client {
namespace {

using shm::Published;

// The line will be written soon: it is fetched from whoever has it, so that the store finds it here.
void fetch_to_write(const void* line) {
#if defined(__x86_64__)
  asm volatile("prefetchw %0" : : "m"(*static_cast<const char*>(line)));
#else
  __builtin_prefetch(line, 1);
#endif
}

// A word that shows exactly that position, of an operation that may end.
class Arrived final : public Condition {
 public:
  Arrived(const EpochView& view, At at) : view_(view), at_(at) {}
  bool reached(std::uint64_t value) const override { return value == at_.position; }
  // While the engine counts, an arrival that is not seen yet may be among those that it sees.
  bool hopeless() const override { return view_.fate_of(at_) == EpochView::Fate::kEnded; }

 private:
  const EpochView& view_;
  At at_;
};

// The progress of member i, in an operation at which all have arrived.
class Progressed final : public Condition {
 public:
  Progressed(const EpochView& view, std::uint32_t i, At at, std::uint64_t phase)
      : view_(view), i_(i), at_(at), target_(shm::make_progress(at.position, phase)) {}
  bool reached(std::uint64_t value) const override { return value >= target_; }
  // That another member has left, or has gone on, is no matter.
  bool hopeless() const override { return view_.let_go(i_, at_); }

 private:
  const EpochView& view_;
  std::uint32_t i_;
  At at_;
  std::uint64_t target_;
};

class Counted final : public Condition {
 public:
  bool reached(std::uint64_t value) const override { return value != shm::kMetUncounted; }
};

}  // namespace

Channel::Channel(const Words& words, std::vector<Peer> peers, WaitHooks& hooks)
    : words_(words),
      peers_(std::move(peers)),
      view_(words.line, &words.seat->epoch, peers_),
      waiter_(words.header, hooks),
      messages_(words.group, words.index, words.seat, words.pairs, peers_, view_, waiter_),
      arrivals_(peers_.size()) {
  MUSTER_ASSERT(words_.index < peers_.size());
  move_on(words.epoch, words.base);
}

// What peers may still read of the old epoch stays: the first arrival in the new one goes into the other
// slot, and progress only grows.
void Channel::move_on(std::uint64_t epoch, std::uint64_t base) {
  position_ = base;
  shared_ = 0;
  messages_.move_on(base);
  view_.move_to(epoch, base);
}

bool Channel::begin() {
  if (view_.closed()) return false;
  ++position_;
  return true;
}

const shm::DirectSlot* Channel::slot_of(std::uint32_t i) const {
  return reinterpret_cast<const shm::DirectSlot*>(peers_[i].slots + (position_ & 1) * shm::kSlotBytes);
}

void Channel::arrive(std::uint64_t plan, const Hash128& common, shm::Place place,
                     std::span<const std::byte> inside) {
  Published<std::uint64_t>(&words_.seat->plans[position_ & 1]).store(plan);
  auto* own = reinterpret_cast<shm::DirectSlot*>(slot(position_));
  fill(own, common, place, inside);
  MUSTER_FAULT_POINT("slot.filled");
  waiter_.publish(&own->position, position_, peers_);
}

Waited Channel::await_arrivals(WaitPolicy& policy) {
  wanted_ = {words_.group, view_.epoch(), shm::DirectWait::kArrivals, 0, position_, 0};
  const Arrived arrived(view_, at());
  for (std::uint32_t i = 0; i < members(); ++i) {
    const shm::DirectSlot* slot = slot_of(i);
    const Waited waited = waiter_.wait(&slot->position, arrived, wanted_, policy);
    if (waited != Waited::kMet) return waited;
    copy(*slot, &arrivals_[i]);
  }
  // Whoever has arrived has left the operation before, and with it the slot of the next one.
  fetch_to_write(slot(position_ + 1));
  waiter_.fence();  // whatever this member saw before the end, the engine counts
  if (view_.fate_of(at()) == EpochView::Fate::kGoesOn) return Waited::kMet;
  return await_count(policy);
}

// The epoch has ended. Whether all had arrived before, or only just after, is the engine's to say: then it is
// the same for all.
Waited Channel::await_count(WaitPolicy& policy) {
  const Waited waited = waiter_.wait(view_.met_word(view_.epoch()), Counted(), wanted_, policy);
  if (waited != Waited::kMet) return waited;
  return view_.fate_of(at()) == EpochView::Fate::kGoesOn ? Waited::kMet : Waited::kEnded;
}

// A slot of this operation is written again only in a later epoch, and not before all have left the
// operation, if it goes on. It does if the engine still counts: this member has seen all arrive before the
// end.
bool Channel::sound() const {
  std::atomic_thread_fence(std::memory_order_acquire);  // what was read came before the look
  return view_.fate_of(at()) != EpochView::Fate::kEnded;
}

bool Channel::awaits_readers(std::uint32_t i) const {
  return !view_.let_go(i, at()) && look(&slot_of(i)->position) == position_;
}

void Channel::withdraw() {
  auto* own = reinterpret_cast<shm::DirectSlot*>(slot(position_));
  Published<std::uint64_t>(&own->position).store(0);
  std::atomic_thread_fence(std::memory_order_release);
}

void Channel::set_phase(std::uint64_t phase) {
  waiter_.publish(&words_.seat->progress, shm::make_progress(position_, phase), peers_);
  MUSTER_FAULT_POINT("phase.set");
}

// All of them had arrived, so nobody sets a phase of a later epoch while this member is in the operation.
Waited Channel::await_phase(std::uint64_t phase, WaitPolicy& policy) {
  wanted_ = {words_.group, view_.epoch(), shm::DirectWait::kPhase, 0, position_, phase};
  for (std::uint32_t i = 0; i < members(); ++i) {
    const Progressed progressed(view_, i, at(), phase);
    const Waited waited = waiter_.wait(&peers_[i].seat->progress, progressed, wanted_, policy);
    if (waited != Waited::kMet) return waited;
  }
  return Waited::kMet;
}

Waited Channel::await_readers(At at, std::uint64_t phase, WaitPolicy& policy) {
  wanted_ = {words_.group, at.epoch, shm::DirectWait::kPhase, 0, at.position, phase};
  for (std::uint32_t i = 0; i < members(); ++i) {
    const Progressed progressed(view_, i, at, phase);
    const Waited waited = waiter_.wait(&peers_[i].seat->progress, progressed, wanted_, policy);
    if (waited == Waited::kEnded && view_.let_go(i, at)) continue;
    if (waited != Waited::kMet) return waited;
  }
  return view_.fate_of(at) == EpochView::Fate::kEnded ? Waited::kEnded : Waited::kMet;
}

}  // namespace muster::client
