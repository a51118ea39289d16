#include "api/client/direct/messages.hpp"

#include <algorithm>
#include <atomic>
#include <cstring>

namespace muster::client {
namespace {

using shm::Published;
using shm::Untrusted;

// A word of member i that shows a position, shifted by so many bits; in vain once the two are parted.
class Shows final : public Condition {
 public:
  Shows(const EpochView& view, std::uint32_t i, std::uint64_t position, int shift)
      : view_(view), i_(i), position_(position), shift_(shift) {}
  bool reached(std::uint64_t value) const override { return value >> shift_ == position_; }
  bool hopeless() const override { return view_.parted_from(i_); }

 private:
  const EpochView& view_;
  std::uint32_t i_;
  std::uint64_t position_;
  int shift_;
};

}  // namespace

void fill(shm::DirectSlot* slot, const Hash128& common, shm::Place place, std::span<const std::byte> inside) {
  Published<std::uint64_t>(&slot->common[0]).store(common.low);
  Published<std::uint64_t>(&slot->common[1]).store(common.high);
  Published<std::uint64_t>(&slot->place).store(shm::pack_place(place));
  if (!inside.empty()) std::memcpy(slot->payload, inside.data(), inside.size());
}

void copy(const shm::DirectSlot& slot, Arrival* arrival) {
  arrival->common.low = Untrusted<std::uint64_t>(&slot.common[0]).load();
  arrival->common.high = Untrusted<std::uint64_t>(&slot.common[1]).load();
  arrival->place = shm::unpack_place(Untrusted<std::uint64_t>(&slot.place).load());
  std::memcpy(arrival->payload, slot.payload, shm::kInlineBytes);
}

Messages::Messages(std::uint64_t group, std::uint32_t index, shm::DirectSeat* seat, shm::DirectPair* pairs,
                   const std::vector<Peer>& peers, const EpochView& view, Waiter& waiter)
    : group_(group),
      index_(index),
      seat_(seat),
      pairs_(pairs),
      peers_(peers),
      view_(view),
      waiter_(waiter),
      sent_(peers.size()),
      received_(peers.size()) {}

// A receiver that still copies a message of the old epoch finds that it does not stand: its position goes
// before anything else is written there.
void Messages::move_on(std::uint64_t base) {
  for (std::uint32_t i = 0; i < peers_.size(); ++i) withdraw(i);
  std::fill(sent_.begin(), sent_.end(), base);
  std::fill(received_.begin(), received_.end(), base);
}

void Messages::send(std::uint32_t to, std::uint64_t plan, const Hash128& common, shm::Place place,
                    std::span<const std::byte> inside) {
  shm::DirectSlot& slot = pairs_[to].sent;
  Published<std::uint64_t>(&seat_->plans[0]).store(plan);
  fill(&slot, common, place, inside);
  waiter_.publish(&slot.position, ++sent_[to], std::span(&peers_[to], 1));
}

Waited Messages::await_received(std::uint32_t to, bool* disagreed, WaitPolicy& policy) {
  const std::uint64_t* received = &peers_[to].pairs[index_].received;
  wanted_ = {group_, view_.epoch(), shm::DirectWait::kReceived, to, sent_[to], 0};
  const Waited waited = waiter_.wait(received, Shows(view_, to, sent_[to], 1), wanted_, policy);
  // The word stays until this member sends again.
  *disagreed = waited == Waited::kMet && (Untrusted<std::uint64_t>(received).load_acquire() & 1) != 0;
  return waited;
}

void Messages::withdraw(std::uint32_t to) {
  Published<std::uint64_t>(&pairs_[to].sent.position).store(0);
  std::atomic_thread_fence(std::memory_order_release);
}

Waited Messages::await(std::uint32_t from, std::uint64_t plan, Arrival* arrival, WaitPolicy& policy) {
  Published<std::uint64_t>(&pairs_[from].plan).store(plan);
  wanted_ = {group_, view_.epoch(), shm::DirectWait::kMessage, from, received_[from] + 1, 0};
  const Shows shows(view_, from, received_[from] + 1, 0);
  const Waited waited = waiter_.wait(&inbox(from).position, shows, wanted_, policy);
  if (waited != Waited::kMet) return waited;
  copy(inbox(from), arrival);
  return stands(from) ? Waited::kMet : Waited::kEnded;
}

bool Messages::stands(std::uint32_t from) const {
  std::atomic_thread_fence(std::memory_order_acquire);  // what was read came before the look
  return Untrusted<std::uint64_t>(&inbox(from).position).load_acquire() == received_[from] + 1;
}

void Messages::acknowledge(std::uint32_t from, bool disagreed) {
  ++received_[from];
  const std::uint64_t word = received_[from] << 1 | std::uint64_t{disagreed};
  waiter_.publish(&pairs_[from].received, word, std::span(&peers_[from], 1));
}

}  // namespace muster::client
