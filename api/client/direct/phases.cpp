#include "api/client/direct/phases.hpp"

#include "api/base/fault_point.hpp"

namespace muster::client {
namespace {

// Member i has reached a phase of an operation at which all have arrived.
class Progressed final : public Waiter::Condition {
 public:
  Progressed(const EpochView& view, std::uint32_t i, const Wanted& wanted)
      : view_(view), i_(i), wanted_(wanted), target_(shm::make_progress(wanted.position, wanted.phase)) {}
  bool reached(std::uint64_t value) const override { return value >= target_; }
  // Whether other members have left, or have moved on, does not matter.
  bool hopeless() const override { return view_.let_go(i_, {wanted_.epoch, wanted_.position}); }
  Wanted wanted() const override { return wanted_; }

 private:
  const EpochView& view_;
  std::uint32_t i_;
  const Wanted wanted_;
  std::uint64_t target_;
};

}  // namespace

void Phases::set(At at, std::uint64_t phase) {
  waiter_.publish(own_, shm::make_progress(at.position, phase), peers_);
  MUSTER_FAULT_POINT("phase.set");
}

Waited Phases::await_of(std::uint32_t i, At at, std::uint64_t phase, WaitPolicy& policy) {
  const Wanted wanted{group_, at.epoch, shm::DirectWait::kPhase, 0, at.position, phase};
  return waiter_.wait(&peers_[i].region->progress, Progressed(view_, i, wanted), policy);
}

// All had arrived at the operation. A phase of a later one, in any epoch, is set only after this member has
// arrived there too. So a larger `progress` never stands for another operation here.
Waited Phases::await(At at, std::uint64_t phase, WaitPolicy& policy) {
  for (std::uint32_t i = 0; i < peers_.size(); ++i)
    if (const Waited waited = await_of(i, at, phase, policy); waited != Waited::kMet) return waited;
  return Waited::kMet;
}

Waited Phases::await_readers(At at, std::uint64_t phase, WaitPolicy& policy) {
  for (std::uint32_t i = 0; i < peers_.size(); ++i) {
    const Waited waited = await_of(i, at, phase, policy);
    if (waited == Waited::kEnded && view_.let_go(i, at)) continue;
    if (waited != Waited::kMet) return waited;
  }
  return view_.fate_of(at) == EpochView::Fate::kEnded ? Waited::kEnded : Waited::kMet;
}

}  // namespace muster::client
