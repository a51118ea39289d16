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

// A slot that shows exactly that position, of an operation that may end.
class AtPosition final : public Condition {
 public:
  explicit AtPosition(const Channel& channel) : channel_(channel), position_(channel.at().position) {}
  bool reached(std::uint64_t value) const override { return value == position_; }
  // While the engine counts, an arrival that is not seen yet may be among those that it sees.
  bool hopeless() const override { return channel_.view().fate_of(channel_.at()) == EpochView::Fate::kEnded; }
  Wanted wanted() const override { return channel_.wanted(); }

 private:
  const Channel& channel_;
  std::uint64_t position_;
};

// The progress of member i, in an operation at which all have arrived.
class Progressed final : public Condition {
 public:
  Progressed(const EpochView& view, std::uint32_t i, const Wanted& wanted)
      : view_(view), i_(i), wanted_(wanted), target_(shm::make_progress(wanted.position, wanted.phase)) {}
  bool reached(std::uint64_t value) const override { return value >= target_; }
  // That another member has left, or has gone on, is no matter.
  bool hopeless() const override { return view_.let_go(i_, {wanted_.epoch, wanted_.position}); }
  Wanted wanted() const override { return wanted_; }

 private:
  const EpochView& view_;
  std::uint32_t i_;
  const Wanted& wanted_;
  std::uint64_t target_;
};

// The engine says what the end of an epoch means.
class Counted final : public Condition {
 public:
  explicit Counted(const Channel& channel) : channel_(channel) {}
  bool reached(std::uint64_t value) const override { return value != shm::kMetUncounted; }
  Wanted wanted() const override { return channel_.wanted(); }

 private:
  const Channel& channel_;
};

}  // namespace

Channel::Channel(const Words& words, std::vector<Peer> peers, WaitHooks& hooks)
    : words_(words),
      peers_(std::move(peers)),
      view_(words.line, &words.seat->epoch, peers_),
      waiter_(words.header, hooks),
      messages_(words.group, words.index, words.seat, words.pairs, peers_, view_, waiter_),
      arrivals_(peers_.size()),
      count_(static_cast<std::uint32_t>(peers_.size())) {
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

inline const shm::DirectSlot* Channel::slot_of(std::uint32_t i) const {
  return reinterpret_cast<const shm::DirectSlot*>(peers_[i].slots + (position_ & 1) * shm::kSlotBytes);
}

void Channel::arrive(std::uint64_t plan) {
  Published<std::uint64_t>(&words_.seat->plans[position_ & 1]).store(plan);
  auto* own = reinterpret_cast<shm::DirectSlot*>(slot(position_));
  draft().write(own);
  MUSTER_FAULT_POINT("slot.filled");
  waiter_.publish(&own->position, position_, peers_);
}

Waited Channel::await_arrival(const shm::DirectSlot& slot, WaitPolicy& policy) {
  return waiter_.wait(&slot.position, AtPosition(*this), policy);
}

Waited Channel::await_arrivals(WaitPolicy& policy) {
  for (std::uint32_t i = 0; i < count_; ++i) {
    if (i == words_.index) continue;
    const shm::DirectSlot* slot = slot_of(i);
    if (look(&slot->position) != position_)
      if (const Waited waited = await_arrival(*slot, policy); waited != Waited::kMet) return waited;
    arrivals_[i].read(*slot);
  }
  // Whoever has arrived has left the operation before, and with it the slot of the next one.
  fetch_to_write(slot(position_ + 1));
  waiter_.fence();  // whatever this member saw before the end, the engine counts
  return view_.ended() ? await_count(policy) : Waited::kMet;
}

Waited Channel::meet(std::uint64_t plan, const FlightRing::Constants& constants, FlightRing& flight,
                     WaitPolicy& policy) {
  arrive(plan);
  MUSTER_FAULT_POINT("operation.arrived");
  // Only now is there time to write it down: the others wait for nothing of this.
  flight.began(constants, 0, view_.epoch(), number(), now());
  MUSTER_FAULT_POINT("operation.recorded");
  return await_arrivals(policy);
}

// The epoch has ended. Whether all had arrived before, or only just after, is the engine's to say: then it is
// the same for all.
Waited Channel::await_count(WaitPolicy& policy) {
  if (view_.fate_of(at()) == EpochView::Fate::kGoesOn) return Waited::kMet;
  const shm::EndedEpoch* record = view_.record_of(view_.epoch());
  if (record == nullptr) return Waited::kEnded;
  const Waited waited = waiter_.wait(&record->met, Counted(*this), policy);
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
  const Wanted wanted{words_.group, view_.epoch(), shm::DirectWait::kPhase, 0, position_, phase};
  for (std::uint32_t i = 0; i < members(); ++i) {
    const Progressed progressed(view_, i, wanted);
    const Waited waited = waiter_.wait(&peers_[i].seat->progress, progressed, policy);
    if (waited != Waited::kMet) return waited;
  }
  return Waited::kMet;
}

Waited Channel::await_readers(At at, std::uint64_t phase, WaitPolicy& policy) {
  const Wanted wanted{words_.group, at.epoch, shm::DirectWait::kPhase, 0, at.position, phase};
  for (std::uint32_t i = 0; i < members(); ++i) {
    const Progressed progressed(view_, i, wanted);
    const Waited waited = waiter_.wait(&peers_[i].seat->progress, progressed, policy);
    if (waited == Waited::kEnded && view_.let_go(i, at)) continue;
    if (waited != Waited::kMet) return waited;
  }
  return view_.fate_of(at) == EpochView::Fate::kEnded ? Waited::kEnded : Waited::kMet;
}

}  // namespace muster::client
