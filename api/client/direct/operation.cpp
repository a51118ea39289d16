#include "api/client/direct/operation.hpp"

#include "api/base/assert.hpp"
#include "api/base/dtype.hpp"
#include "api/base/fault_point.hpp"
#include "api/base/node_limits.hpp"
#include "api/client/direct/faces.hpp"
#include "api/client/direct/payloads.hpp"
#include "api/client/direct/reading.hpp"
#include "api/client/direct/shared.hpp"
#include "api/client/direct/slices.hpp"
#include "kernels/math/copy.hpp"
#include "kernels/math/deliver.hpp"

#include <algorithm>
#include <array>
#include <cstring>

namespace muster::client {
namespace {

// What every body needs.
struct Run {
  const DirectPlan& plan;
  Channel& channel;
  Payloads& payloads;
  std::size_t element;
  std::uint32_t me;
  std::uint32_t members;

  std::size_t streaming_from(std::uint64_t target_bytes) const {
    return math::streaming_from(target_bytes * members);
  }
  // The others first in line after this member, so that not all read the same one at once; itself last.
  std::uint32_t turn(std::uint32_t k) const { return (me + 1 + k) % members; }
};

// ---- bodies: what a member does once all have arrived and agree ----------------------------------

using Sources = std::array<const std::byte*, kRanksOnNodeMax>;

// Folds one equally long piece of every member into this member's target.
template<class SourceOf>
Outcome fold(const Run& run, std::uint64_t count, SourceOf source_of) {
  Sources sources;
  for (std::uint32_t i = 0; i < run.members; ++i) {
    sources[i] = source_of(i);
    if (sources[i] == nullptr) return Outcome::kCorrupt;
  }
  const Share& mine = run.plan.mine;
  std::byte* const target = mine.target + mine.target_blocks.front().offset * run.element;
  math::reduce_to_all(run.plan.what.dtype, run.plan.what.redop, std::span(sources).first(run.members),
                      std::span(&target, 1), count, run.plan.what.scale,
                      run.streaming_from(count * run.element));
  MUSTER_FAULT_POINT("whole.folded");
  return run.payloads.all_intact() ? Outcome::kDone : Outcome::kBroken;
}

Outcome reduce_whole(const Run& run) {
  const std::uint64_t count = run.plan.what.count;
  if (run.plan.mine.target_blocks.empty() || count == 0) return Outcome::kDone;
  return fold(run, count, [&](std::uint32_t i) { return run.payloads.read(i, 0, count * run.element); });
}

Outcome reduce_scatter(const Run& run) {
  const std::uint64_t count = run.plan.mine.target_blocks.front().count;
  if (count == 0) return Outcome::kDone;
  return fold(run, count, [&](std::uint32_t i) { return run.payloads.block_for_me(i, count * run.element); });
}

Outcome take(const Run& run, std::uint32_t from, const Block& to, const std::byte* source) {
  const std::uint64_t bytes = to.count * run.element;
  if (bytes == 0) return Outcome::kDone;
  if (source == nullptr) return Outcome::kCorrupt;
  const std::uint64_t all_bytes = got_count(run.plan.mine) * run.element;
  std::byte* target = run.plan.mine.target + to.offset * run.element;
  math::copy(target, source, bytes, source == target ? math::kNeverStream : run.streaming_from(all_bytes));
  MUSTER_FAULT_POINT("block.copied");
  return run.payloads.intact(from) ? Outcome::kDone : Outcome::kBroken;
}

// ALL_GATHER, and GATHER at its root: block i is the whole contribution of member i.
Outcome collect(const Run& run) {
  const auto& blocks = run.plan.mine.target_blocks;
  if (blocks.empty()) return Outcome::kDone;
  for (std::uint32_t k = 0; k < run.members; ++k) {
    const std::uint32_t i = run.turn(k);
    const std::uint64_t bytes = blocks[i].count * run.element;
    const std::byte* source = bytes > 0 ? run.payloads.read(i, 0, bytes) : nullptr;
    if (const Outcome taken = take(run, i, blocks[i], source); taken != Outcome::kDone) return taken;
  }
  return Outcome::kDone;
}

Outcome broadcast(const Run& run) {
  const auto root = static_cast<std::uint32_t>(run.plan.what.root);
  const bool wants_none = run.plan.mine.target_blocks.empty() || run.plan.mine.target == nullptr;
  if (wants_none || run.plan.what.count == 0) return Outcome::kDone;
  const Block& to = run.plan.mine.target_blocks.front();
  return take(run, root, to, run.payloads.read(root, 0, to.count * run.element));
}

Outcome scatter(const Run& run) {
  const auto root = static_cast<std::uint32_t>(run.plan.what.root);
  const Block& to = run.plan.mine.target_blocks.front();
  if (to.count == 0) return Outcome::kDone;
  return take(run, root, to, run.payloads.block_for_me(root, to.count * run.element));
}

Outcome all_to_all(const Run& run) {
  const auto& blocks = run.plan.mine.target_blocks;
  for (std::uint32_t k = 0; k < run.members; ++k) {
    const std::uint32_t i = run.turn(k);
    const std::uint64_t bytes = blocks[i].count * run.element;
    const std::byte* source = bytes > 0 ? run.payloads.block_for_me(i, bytes) : nullptr;
    if (const Outcome taken = take(run, i, blocks[i], source); taken != Outcome::kDone) return taken;
  }
  return Outcome::kDone;
}

Outcome body(const Run& run) {
  switch (run.plan.what.op) {
    case MUSTER_ALL_REDUCE:
    case MUSTER_REDUCE:
      return reduce_whole(run);
    case MUSTER_REDUCE_SCATTER:
      return reduce_scatter(run);
    case MUSTER_ALL_GATHER:
    case MUSTER_GATHER:
      return collect(run);
    case MUSTER_BROADCAST:
      return broadcast(run);
    case MUSTER_SCATTER:
      return scatter(run);
    case MUSTER_ALL_TO_ALL:
      return all_to_all(run);
    default:
      return Outcome::kDone;  // a barrier has met already
  }
}

// The bodies look at the memory that they have read; of slots one look at the end tells of all.
Outcome sound_body(const Run& run) {
  const Outcome done = body(run);
  return done == Outcome::kDone && !run.channel.sound() ? Outcome::kBroken : done;
}

// ---- agreement ---------------------------------------------------------------------------------

// Every member finds the same: all see all signatures.
bool agreed(const DirectPlan& plan, const Channel& channel) {
  Hash128 balance;
  const bool pairwise = is_pairwise(plan.what.op);
  for (std::uint32_t i = 0; i < channel.members(); ++i) {
    const Arrival& arrival = channel.arrival(i);
    if (!(arrival.common == plan.signature.common)) return false;
    if (!pairwise) continue;
    Hash128 theirs;
    std::memcpy(&theirs, arrival.payload, sizeof theirs);
    balance += theirs;
  }
  return balance.zero();
}

// Only now is there time to write it down: the others wait for nothing of this any more.
void record(const DirectPlan& plan, DirectMemory& memory, std::uint32_t peer, std::uint64_t number) {
  const auto* lines = reinterpret_cast<const shm::GroupLine*>(memory.groups() + shm::kGroupLinesOffset);
  FlightRing::Facts facts;
  facts.what.line = static_cast<std::uint32_t>(plan.channel->view().line() - lines);
  facts.what.op = static_cast<std::uint8_t>(plan.what.op);
  facts.what.dtype = static_cast<std::uint8_t>(plan.what.dtype);
  if (!plan.what.counts.empty()) facts.what.dtype |= shm::kRecordUneven;
  facts.what.peer = static_cast<std::uint16_t>(peer);
  facts.epoch = plan.channel->view().epoch();
  facts.number = number;
  facts.source_bytes = plan.given_bytes;
  facts.target_bytes = plan.got_bytes;
  memory.flight().began(facts, plan.channel->now());
}

// Arrives, and waits until all have and mean the same.
template<class Arrive>
Outcome meet(const DirectPlan& plan, DirectMemory& memory, WaitPolicy& policy, Arrive arrive) {
  Channel& channel = *plan.channel;
  if (!channel.begin()) return Outcome::kRefused;
  arrive();
  MUSTER_FAULT_POINT("operation.arrived");
  record(plan, memory, 0, channel.number());
  MUSTER_FAULT_POINT("operation.recorded");
  if (const Waited met = channel.await_arrivals(policy); met != Waited::kMet) return outcome_of(met);
  MUSTER_FAULT_POINT("operation.met");
  if (!agreed(plan, channel)) {
    channel.set_phase(shm::kPhaseLast);  // nobody is to wait for this member to read anything
    return Outcome::kDisagree;
  }
  MUSTER_FAULT_POINT("operation.agreed");
  return Outcome::kDone;
}

Outcome agree(const DirectPlan& plan, DirectMemory& memory, WaitPolicy& policy) {
  std::array<std::byte, sizeof(Hash128)> balance{};
  if (is_pairwise(plan.what.op)) std::memcpy(balance.data(), &plan.signature.balance, balance.size());
  return meet(plan, memory, policy,
              [&] { plan.channel->arrive(plan.handle, plan.signature.common, {}, balance); });
}

Outcome run_collective(const DirectPlan& plan, DirectMemory& memory, Stages& stages, WaitPolicy& policy) {
  Channel& channel = *plan.channel;
  Payloads payloads(plan, memory, stages, policy);
  Faces faces(plan, payloads, memory);
  const bool exchange = plan.what.op == MUSTER_EXCHANGE;
  const Outcome prepared = exchange ? faces.prepare(stages, policy) : payloads.prepare();
  if (prepared != Outcome::kDone) return prepared;
  MUSTER_FAULT_POINT("payload.prepared");
  const Outcome met = meet(plan, memory, policy, [&] { exchange ? faces.arrive() : payloads.arrive(); });
  if (met != Outcome::kDone) {
    stages.forget_unbegun(channel);
    return met;
  }
  if (plan.choice.algorithm == Algorithm::kSliced) return reduce_sliced(plan, payloads, policy);
  if (plan.choice.algorithm == Algorithm::kRead) return reduce_by_reading(plan, payloads, policy);
  if (plan.choice.algorithm == Algorithm::kShared) return run_shared(plan, payloads, policy);

  const Run run{plan, channel, payloads, dtype_bytes(plan.what.dtype), channel.index(), channel.members()};
  const Outcome done = exchange ? faces.receive() : sound_body(run);
  const bool say_done = exchange ? faces.must_say_done() : payloads.must_say_done();
  if (done != Outcome::kDone || !say_done) return done;
  channel.set_phase(shm::kPhaseLast);
  if (!(exchange ? faces.must_await_done() : payloads.must_await_done())) return done;
  return outcome_of(channel.await_readers(channel.at(), shm::kPhaseLast, policy));
}

// ---- send and receive --------------------------------------------------------------------------

// The sender waits until the receiver has taken the message, so both hear of a difference, and memory that
// was sent may change when the call is over.
Outcome send(const DirectPlan& plan, DirectMemory& memory, WaitPolicy& policy) {
  Channel& channel = *plan.channel;
  Messages& messages = channel.messages();
  const auto to = static_cast<std::uint32_t>(plan.what.receiver);
  const std::uint64_t bytes = plan.what.count * dtype_bytes(plan.what.dtype);
  if (channel.view().parted_from(to)) return Outcome::kRefused;
  const bool inside = bytes <= shm::kInlineBytes;
  const shm::Place place = inside ? shm::Place{shm::Place::Kind::kInline, 0, 0} : plan.home;
  messages.send(to, plan.handle, plan.signature.common, place,
                inside ? std::span(plan.mine.source, bytes) : std::span<const std::byte>());
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
  const std::uint64_t bytes = plan.what.count * dtype_bytes(plan.what.dtype);
  if (channel.view().parted_from(from)) return Outcome::kRefused;
  record(plan, memory, from, messages.received_from(from) + 1);
  MUSTER_FAULT_POINT("receive.awaiting");
  Arrival arrival;
  if (const Waited met = messages.await(from, plan.handle, &arrival, policy); met != Waited::kMet)
    return outcome_of(met);
  MUSTER_FAULT_POINT("receive.came");
  if (!(arrival.common == plan.signature.common)) {
    messages.acknowledge(from, true);
    return Outcome::kDisagree;
  }
  const bool inside = arrival.place.kind == shm::Place::Kind::kInline && bytes <= shm::kInlineBytes;
  const bool there = arrival.place.kind == shm::Place::Kind::kArena;
  const std::byte* source = inside ? arrival.payload : nullptr;
  if (there) source = memory.arena(channel.peer(from).rank, arrival.place.index, arrival.place.value, bytes);
  if (source == nullptr) return Outcome::kCorrupt;
  if (bytes > 0) math::copy(plan.mine.target, source, bytes, math::streaming_from(bytes));
  MUSTER_FAULT_POINT("receive.copied");
  // A sender that moves on takes its message away before it touches what it had sent.
  if (there && (channel.view().has_left(from) || !messages.stands(from))) return Outcome::kBroken;
  messages.acknowledge(from, false);
  MUSTER_FAULT_POINT("receive.acknowledged");
  return Outcome::kDone;
}

// If the engine is gone, no epoch ends by which others could tell that this member waits for them no more: it
// takes its position away before its caller can write what they still read.
Outcome ended_early(const DirectPlan& plan, DirectMemory& memory, Outcome outcome) {
  const bool failed = outcome == Outcome::kBroken || outcome == Outcome::kCorrupt;
  if (failed && !explained(plan) && plan.channel->engine_gone()) outcome = Outcome::kAlone;
  if (outcome == Outcome::kAlone) withdraw(plan);
  // Memory that could not be had went with its owner: it explains no later failure.
  if (outcome == Outcome::kBroken) static_cast<void>(memory.take_trouble());
  return outcome;
}

}  // namespace

bool explained(const DirectPlan& plan) {
  const EpochView& view = plan.channel->view();
  if (plan.what.op == MUSTER_SEND) return view.parted_from(static_cast<std::uint32_t>(plan.what.receiver));
  if (plan.what.op == MUSTER_RECV) return view.parted_from(static_cast<std::uint32_t>(plan.what.root));
  return view.closed();
}

const Wanted& wanted_by(const DirectPlan& plan) {
  return is_transfer(plan.what.op) ? plan.channel->messages().wanted() : plan.channel->wanted();
}

void withdraw(const DirectPlan& plan) {
  if (plan.what.op == MUSTER_SEND)
    plan.channel->messages().withdraw(static_cast<std::uint32_t>(plan.what.receiver));
  else if (plan.what.op != MUSTER_RECV)
    plan.channel->withdraw();
}

Outcome run_direct(const DirectPlan& plan, DirectMemory& memory, Stages& stages, WaitPolicy& policy) {
  MUSTER_ASSERT(plan.channel->members() <= kRanksOnNodeMax);
  const bool elsewhere = plan.choice.path == Path::kEngine;
  Outcome outcome = plan.what.op == MUSTER_SEND   ? send(plan, memory, policy)
                    : plan.what.op == MUSTER_RECV ? receive(plan, memory, policy)
                    : elsewhere                   ? agree(plan, memory, policy)
                                                  : run_collective(plan, memory, stages, policy);
  if (outcome != Outcome::kDone) outcome = ended_early(plan, memory, outcome);
  MUSTER_FAULT_POINT("operation.done");
  FlightRing& flight = memory.flight();
  flight.ended(outcome == Outcome::kDone ? shm::RecordState::kWell : shm::RecordState::kBadly,
               flight.wants_end() ? plan.channel->now() : Instant{0});
  MUSTER_FAULT_POINT("record.closed");
  return outcome;
}

}  // namespace muster::client
