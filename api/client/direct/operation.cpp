#include "api/client/direct/operation.hpp"

#include "api/base/fault_point.hpp"

namespace muster::client {

bool balanced(const Channel& channel) {
  Hash128 balance;
  for (std::uint32_t i = 0; i < channel.members(); ++i)
    balance += channel.arrivals().of(i).said<Announced::Balance>().balance;
  return balance.zero();
}

// If the engine is gone, the epoch does not end, so peers could not see that this member no longer waits for
// them. It takes its arrival back before its caller can overwrite memory that they still read.
Outcome ended_early(const DirectPlan& plan, DirectMemory& memory, Outcome outcome) {
  const bool failed = outcome == Outcome::kBroken || outcome == Outcome::kCorrupt;
  if (failed && !explained(plan) && plan.channel->engine_gone()) outcome = Outcome::kAlone;
  if (outcome == Outcome::kAlone) withdraw(plan);
  // The owner of memory that could not be mapped is gone too. This error must not explain a later failure.
  if (outcome == Outcome::kBroken) static_cast<void>(memory.take_trouble());
  return outcome;
}

bool explained(const DirectPlan& plan) {
  const EpochView& view = plan.channel->view();
  if (plan.what.op == MUSTER_SEND) return view.parted_from(static_cast<std::uint32_t>(plan.what.receiver));
  if (plan.what.op == MUSTER_RECV) return view.parted_from(static_cast<std::uint32_t>(plan.what.root));
  return view.closed();
}

Wanted wanted_by(const DirectPlan& plan) {
  const Messages& messages = plan.channel->messages();
  if (plan.what.op == MUSTER_SEND) return messages.wanted_to(static_cast<std::uint32_t>(plan.what.receiver));
  if (plan.what.op == MUSTER_RECV) return messages.wanted_from(static_cast<std::uint32_t>(plan.what.root));
  return plan.channel->wanted();
}

Wanted disagreed_in(const DirectPlan& plan) {
  if (plan.what.op != MUSTER_RECV) return wanted_by(plan);
  return plan.channel->messages().acknowledged_from(static_cast<std::uint32_t>(plan.what.root));
}

void withdraw(const DirectPlan& plan) {
  if (plan.what.op == MUSTER_SEND)
    plan.channel->messages().withdraw(static_cast<std::uint32_t>(plan.what.receiver));
  else if (plan.what.op != MUSTER_RECV)
    plan.channel->arrivals().withdraw();
}

}  // namespace muster::client
