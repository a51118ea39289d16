// SEND and RECV on the direct path.
#include "api/base/fault_point.hpp"
#include "api/client/direct/algorithms.hpp"
#include "kernels/math/copy.hpp"

#include <cstring>

namespace muster::client {
namespace {

using Kind = shm::PayloadLocation::Kind;

// Records that this rank is in the operation.
void record(const DirectPlan& plan, DirectMemory& memory, std::uint32_t peer, std::uint64_t number) {
  const Channel& channel = *plan.channel;
  memory.flight().began(plan.record, peer, channel.view().epoch(), number, channel.now());
}

// The sender waits until the receiver has acknowledged the message. So both notice if they disagree, and the
// caller may overwrite the memory that it sent once the call returns.
Outcome send(const DirectPlan& plan, DirectMemory& memory, WaitPolicy& policy) {
  Channel& channel = *plan.channel;
  Messages& messages = channel.messages();
  const auto to = static_cast<std::uint32_t>(plan.what.receiver);
  if (channel.view().parted_from(to)) return Outcome::kRefused;
  Announced announced{plan.signature.common};
  const bool inside = plan.given_bytes <= shm::kInlineBytes;
  announced.location_bits =
      shm::pack_location(inside ? shm::PayloadLocation{Kind::kInline, 0, 0} : plan.home);
  if (inside && plan.given_bytes > 0) std::memcpy(announced.inside, plan.mine.source, plan.given_bytes);
  messages.send(to, plan.handle, announced);
  MUSTER_FAULT_POINT("send.published");
  record(plan, memory, to, messages.sent_to(to));
  bool disagreed = false;
  const Waited met = messages.await_received(to, &disagreed, policy);
  MUSTER_FAULT_POINT("send.received");
  return disagreed ? Outcome::kDisagree : outcome_of(met);
}

Outcome receive(const DirectPlan& plan, DirectMemory& memory, WaitPolicy& policy) {
  Channel& channel = *plan.channel;
  Messages& messages = channel.messages();
  const auto from = static_cast<std::uint32_t>(plan.what.root);
  const std::uint64_t bytes = plan.got_bytes;
  if (channel.view().parted_from(from)) return Outcome::kRefused;
  record(plan, memory, from, messages.received_from(from) + 1);
  MUSTER_FAULT_POINT("receive.awaiting");
  Announced message;
  if (const Waited met = messages.await(from, plan.handle, &message, policy); met != Waited::kMet)
    return outcome_of(met);
  MUSTER_FAULT_POINT("receive.came");
  if (!(message.common == plan.signature.common)) {
    messages.acknowledge(from, true);
    return Outcome::kDisagree;
  }
  const shm::PayloadLocation location = message.location();
  const bool inside = location.kind == Kind::kInline && bytes <= shm::kInlineBytes;
  const bool there = location.kind == Kind::kArena;
  const std::byte* source = inside ? message.inside : nullptr;
  if (there) source = memory.arena(channel.peer(from).rank, location.index, location.value, bytes);
  if (source == nullptr) return Outcome::kCorrupt;
  if (bytes > 0) math::copy(plan.mine.target, source, bytes, math::streaming_from(bytes));
  MUSTER_FAULT_POINT("receive.copied");
  // A sender that moves on takes its message back before its caller can overwrite the data of that message.
  if (there && (channel.view().has_left(from) || !messages.stands(from))) return Outcome::kBroken;
  messages.acknowledge(from, false);
  MUSTER_FAULT_POINT("receive.acknowledged");
  return Outcome::kDone;
}

}  // namespace

Outcome run_transfer(const DirectPlan& plan, DirectMemory& memory, Stages& /*stages*/, WaitPolicy& policy) {
  return plan.what.op == MUSTER_SEND ? send(plan, memory, policy) : receive(plan, memory, policy);
}

}  // namespace muster::client
