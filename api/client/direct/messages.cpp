#include "api/client/direct/messages.hpp"

#include <algorithm>
#include <atomic>
#include <span>

namespace muster::client {
namespace {

using shm::Published;

// A peer's word shows the wanted position in the bits from `shift` on. Hopeless once no message can pass.
class Shows final : public Waiter::Condition {
 public:
  Shows(const EpochView& view, const Wanted& wanted, int shift)
      : view_(view), wanted_(wanted), shift_(shift) {}
  bool reached(std::uint64_t value) const override { return value >> shift_ == wanted_.position; }
  bool hopeless() const override { return view_.parted_from(wanted_.peer); }
  Wanted wanted() const override { return wanted_; }

 private:
  const EpochView& view_;
  const Wanted wanted_;
  int shift_;
};

}  // namespace

Messages::Messages(std::uint64_t group, std::uint32_t index, shm::MemberRegion* region,
                   shm::DirectPair* pairs, const std::vector<Peer>& peers, const EpochView& view,
                   Waiter& waiter)
    : group_(group),
      index_(index),
      region_(region),
      pairs_(pairs),
      peers_(peers),
      view_(view),
      waiter_(waiter),
      sent_(peers.size()),
      received_(peers.size()) {}

// Takes back this member's messages of the old epoch: their positions are cleared before anything else is
// written. A receiver that is still copying one then discards it (stands()).
void Messages::move_on(std::uint64_t base) {
  for (std::uint32_t i = 0; i < peers_.size(); ++i) withdraw(i);
  std::fill(sent_.begin(), sent_.end(), base);
  std::fill(received_.begin(), received_.end(), base);
}

void Messages::send(std::uint32_t to, std::uint64_t plan, const Announced& announced) {
  shm::DirectSlot& slot = pairs_[to].sent;
  Published<std::uint64_t>(&region_->plans[0]).store(plan);
  announced.write(&slot);
  waiter_.publish(&slot.position, ++sent_[to], std::span(&peers_[to], 1));
}

Waited Messages::await_received(std::uint32_t to, bool* disagreed, WaitPolicy& policy) {
  const std::uint64_t* received = &peers_[to].pairs[index_].received;
  const Waited waited = waiter_.wait(received, Shows(view_, wanted_to(to), 1), policy);
  // The receiver does not change the word before this member sends again.
  *disagreed = waited == Waited::kMet && (look(received) & 1) != 0;
  return waited;
}

void Messages::withdraw(std::uint32_t to) {
  Published<std::uint64_t>(&pairs_[to].sent.position).store(0);
  std::atomic_thread_fence(std::memory_order_release);
}

Waited Messages::await(std::uint32_t from, std::uint64_t plan, Announced* message, WaitPolicy& policy) {
  Published<std::uint64_t>(&pairs_[from].plan).store(plan);
  const Waited waited = waiter_.wait(&inbox(from).position, Shows(view_, wanted_from(from), 0), policy);
  if (waited != Waited::kMet) return waited;
  message->read(inbox(from));
  return stands(from) ? Waited::kMet : Waited::kEnded;
}

bool Messages::stands(std::uint32_t from) const {
  std::atomic_thread_fence(std::memory_order_acquire);  // the reads of the message come before the check
  return look(&inbox(from).position) == received_[from] + 1;
}

void Messages::acknowledge(std::uint32_t from, bool disagreed) {
  ++received_[from];
  const std::uint64_t word = received_[from] << 1 | std::uint64_t{disagreed};
  waiter_.publish(&pairs_[from].received, word, std::span(&peers_[from], 1));
}

}  // namespace muster::client
