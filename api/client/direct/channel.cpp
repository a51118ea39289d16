#include "api/client/direct/channel.hpp"

#include "api/base/assert.hpp"
#include "api/base/fault_point.hpp"

#include <atomic>
#include <utility>

namespace muster::client {
namespace {

// Prefetches a line for writing, so that the next store hits it in this core's cache.
void fetch_to_write(const void* line) {
#if defined(__x86_64__)
  asm volatile("prefetchw %0" : : "m"(*static_cast<const char*>(line)));
#else
  __builtin_prefetch(line, 1);
#endif
}

// A member's slot shows exactly the present position. Hopeless if the operation has failed.
class AtPosition final : public Waiter::Condition {
 public:
  explicit AtPosition(const Channel& channel) : channel_(channel), position_(channel.at().position) {}
  bool reached(std::uint64_t value) const override { return value == position_; }
  // Fate::kUnknown is not hopeless: the engine may count an arrival that this member has not seen yet.
  bool hopeless() const override { return channel_.view().fate_of(channel_.at()) == EpochView::Fate::kEnded; }
  Wanted wanted() const override { return channel_.wanted(); }

 private:
  const Channel& channel_;
  std::uint64_t position_;
};

// The engine has counted which operations go on after the end of an epoch.
class Counted final : public Waiter::Condition {
 public:
  explicit Counted(const Channel& channel) : channel_(channel) {}
  bool reached(std::uint64_t value) const override { return value != shm::kMetUncounted; }
  Wanted wanted() const override { return channel_.wanted(); }

 private:
  const Channel& channel_;
};

shm::DirectPair* pairs_of(shm::MemberRegion* region) {
  return reinterpret_cast<shm::DirectPair*>(reinterpret_cast<std::byte*>(region) + shm::kPairsOffset);
}

}  // namespace

Channel::Channel(const Words& words, std::vector<Peer> peers, WaitHooks& hooks)
    : group_(words.group),
      index_(words.index),
      count_(static_cast<std::uint32_t>(peers.size())),
      line_(words.line_index),
      peers_(std::move(peers)),
      view_(words.line, &words.region->epoch, peers_),
      waiter_(words.header, hooks),
      arrivals_(words.index, words.region, peers_),
      phases_(words.group, &words.region->progress, peers_, view_, waiter_),
      messages_(words.group, words.index, words.region, pairs_of(words.region), peers_, view_, waiter_) {
  MUSTER_ASSERT(index_ < count_);
  move_on(words.epoch, words.base);
}

// Peers may still read this member's words of an operation in the old epoch, so these stay. The first arrival
// of the new epoch uses the other slot, and progress only grows.
void Channel::move_on(std::uint64_t epoch, std::uint64_t base) {
  arrivals_.move_to(base);
  shared_ = 0;
  messages_.move_on(base);
  view_.move_to(epoch, base);
}

Waited Channel::await_arrival(const shm::DirectSlot& slot, WaitPolicy& policy) {
  return waiter_.wait(&slot.position, AtPosition(*this), policy);
}

Waited Channel::await_arrivals(WaitPolicy& policy, BeforeWait before_wait) {
  for (std::uint32_t i = 0; i < count_; ++i) {
    if (i == index_) continue;
    const shm::DirectSlot& slot = arrivals_.slot_of(i);
    if (look(&slot.position) != arrivals_.position()) {
      if (before_wait != nullptr) std::exchange(before_wait, nullptr)(*this, i);
      if (const Waited waited = await_arrival(slot, policy); waited != Waited::kMet) return waited;
    }
    arrivals_.take(i, slot);
  }
  // All members have left the operation before, which used the slot of the next one. So no member reads that
  // slot now.
  fetch_to_write(arrivals_.next_slot());
  waiter_.fence();  // if this member sees no end below, the engine counts all arrivals that it saw above
  return view_.ended() ? await_count(policy) : Waited::kMet;
}

// The epoch has ended. The engine alone decides whether all had arrived before, so all members decide alike.
Waited Channel::await_count(WaitPolicy& policy) {
  if (view_.fate_of(at()) == EpochView::Fate::kGoesOn) return Waited::kMet;
  const shm::EndedEpoch* record = view_.record_of(view_.epoch());
  if (record == nullptr) return Waited::kEnded;
  const Waited waited = waiter_.wait(&record->met, Counted(*this), policy);
  if (waited != Waited::kMet) return waited;
  return view_.fate_of(at()) == EpochView::Fate::kGoesOn ? Waited::kMet : Waited::kEnded;
}

// While this member is in the operation, peers write its slots again only in a later epoch. They do so after
// all have left the operation, if it goes on. It goes on too if the engine still counts: this member saw all
// arrive before it saw the end, so the engine counts them.
bool Channel::sound() const {
  std::atomic_thread_fence(std::memory_order_acquire);  // the reads of slots come before the check
  return view_.fate_of(at()) != EpochView::Fate::kEnded;
}

bool Channel::awaits_readers(std::uint32_t i) const {
  return !view_.let_go(i, at()) && look(&arrivals_.slot_of(i).position) == arrivals_.position();
}

}  // namespace muster::client
