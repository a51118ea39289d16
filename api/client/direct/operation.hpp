// One run of a collective on the direct path: arrive, agree, then each member does its own part.
#pragma once

#include "api/base/collective/path.hpp"
#include "api/base/collective/signature.hpp"
#include "api/base/fault_point.hpp"
#include "api/client/direct/channel.hpp"
#include "api/client/direct/memory.hpp"
#include "api/client/direct/wait_policy.hpp"
#include "kernels/math/reducer.hpp"

#include <cstddef>
#include <cstdint>
#include <vector>

namespace muster::client {

enum class Outcome : std::uint8_t {
  kDone,
  kRefused,      // the epoch has ended, or no operation may begin; nothing was begun
  kBroken,       // the epoch has ended, or a peer's data was overwritten while it was read
  kDisagree,     // the members' signatures differ; nothing was moved
  kCorrupt,      // a peer published an invalid operation, or its memory could not be mapped
  kAlone,        // the engine is gone
  kNoMemory,     // for the copy that an operation in place needs; nothing was begun
  kInterrupted,  // the group does not know yet
};

constexpr Outcome outcome_of(Waited waited) noexcept {
  switch (waited) {
    case Waited::kMet:
      return Outcome::kDone;
    case Waited::kEnded:
      return Outcome::kBroken;
    case Waited::kInterrupted:
      return Outcome::kInterrupted;
    default:
      return Outcome::kAlone;
  }
}

struct DirectPlan;

// A collective plan in the process that runs it. All that a run needs is decided when the plan is made.
struct DirectPlan {
  // One operation, from this member's arrival to the end of its own part.
  using Body = Outcome (*)(const DirectPlan& plan, DirectMemory& memory, Stages& stages, WaitPolicy& policy);

  // The values that Algorithm::kSmall and kTurns compute when the plan is made.
  struct Small {
    const std::byte* source = nullptr;  // of the contribution, if it is one block
    std::size_t bytes = 0;
    void (*take)(const DirectPlan& plan) = nullptr;  // runs once all have arrived; nullptr: nothing to do
    // The next four are for a reduction: it reads the members' announced payloads in the channel, and writes
    // `line`.
    math::Reducer reducer = nullptr;
    math::Reduction reduction{};
    std::vector<const std::byte*> sources;
    std::vector<std::byte> line;
  };

  std::uint64_t handle = 0;
  Channel* channel = nullptr;
  const Nanos* deadline = nullptr;  // default of its group (Groups::Facts); lives as long as the group
  Collective what;
  Share mine;  // with this process's addresses
  Signature signature;
  Choice choice;
  shm::PayloadLocation home;                // of mine.source in this rank's arena: Kind::kArena
  std::vector<shm::PayloadLocation> sends;  // of the first byte of each of mine.sends
  // REDUCE_SCATTER: byte offset of this member's block in a vector whose blocks lie end to end.
  std::uint64_t my_offset = 0;
  bool end_to_end = false;        // whether the source's blocks lie so
  std::size_t element = 0;        // bytes
  std::uint64_t given_bytes = 0;  // in the whole operation, whether the bytes move or not
  std::uint64_t got_bytes = 0;
  std::uint64_t target_bytes = 0;
  bool crowded = false;
  bool pairwise = false;  // is_pairwise(what.op)
  FlightRing::Constants record;
  Body body = nullptr;
  Small small;  // Algorithm::kSmall, kTurns
};

// If the engine carries the operation out (choice.path), members only agree on it here. Otherwise members
// that differ could take different paths, and would notice it only at a deadline.
//
// Thread: the session's. Bound: the policy's deadline, renewed by the engine's answer to WaitHooks::overdue.
inline Outcome run_direct(const DirectPlan& plan, DirectMemory& memory, Stages& stages, WaitPolicy& policy);

// For the algorithms: arrives at the operation that has begun (Channel::begin), waits until all members have
// arrived, and compares their signatures. The draft of the arrivals holds what it announces beside its own.
inline Outcome meet(const DirectPlan& plan, DirectMemory& memory, WaitPolicy& policy);
// The two halves of meet().
inline void come(const DirectPlan& plan, DirectMemory& memory);
inline Outcome meet_others(const DirectPlan& plan, WaitPolicy& policy,
                           Channel::BeforeWait before_wait = nullptr);

// Whether the engine has a cause for the operation's failure: the group's epoch has ended, or a member is
// named absent. For a message: the partner will not come.
bool explained(const DirectPlan& plan);

// The first wait of the operation.
Wanted wanted_by(const DirectPlan& plan);

// The operation in which members differed, after kDisagree. A receiver has acknowledged the message by then,
// so wanted_by() would name the next one.
Wanted disagreed_in(const DirectPlan& plan);

// Takes this member's arrival or message back, because no end of the epoch tells the peers that it leaves.
// They discard what they read of its memory from now on.
void withdraw(const DirectPlan& plan);

// Cleans up after an operation that is not done, and returns its final outcome.
Outcome ended_early(const DirectPlan& plan, DirectMemory& memory, Outcome outcome);

// Whether the balances of all members add up to zero (api/base/collective/signature.hpp).
bool balanced(const Channel& channel);

// All members see the same signatures, so all return the same.
inline bool agreed(const DirectPlan& plan, const Channel& channel) {
  const Hash128 mine = plan.signature.common;
  std::uint64_t difference = 0;
  for (std::uint32_t i = 0; i < channel.members(); ++i) {
    const Hash128& theirs = channel.arrivals().of(i).common;
    difference |= (theirs.low ^ mine.low) | (theirs.high ^ mine.high);
  }
  return difference == 0 && (!plan.pairwise || balanced(channel));
}

inline void come(const DirectPlan& plan, DirectMemory& memory) {
  Channel& channel = *plan.channel;
  channel.arrivals().draft().common = plan.signature.common;
  channel.come(plan.handle, plan.record, memory.flight());
}

inline Outcome meet_others(const DirectPlan& plan, WaitPolicy& policy, Channel::BeforeWait before_wait) {
  Channel& channel = *plan.channel;
  const Waited met = channel.await_arrivals(policy, before_wait);
  if (met != Waited::kMet) return outcome_of(met);
  MUSTER_FAULT_POINT("operation.met");
  if (!agreed(plan, channel)) {
    channel.phases().set(channel.at(),
                         shm::kPhaseLast);  // no peer is to wait for reads of this member
    return Outcome::kDisagree;
  }
  MUSTER_FAULT_POINT("operation.agreed");
  return Outcome::kDone;
}

inline Outcome meet(const DirectPlan& plan, DirectMemory& memory, WaitPolicy& policy) {
  come(plan, memory);
  return meet_others(plan, policy);
}

inline Outcome run_direct(const DirectPlan& plan, DirectMemory& memory, Stages& stages, WaitPolicy& policy) {
  Outcome outcome = plan.body(plan, memory, stages, policy);
  if (outcome != Outcome::kDone) outcome = ended_early(plan, memory, outcome);
  MUSTER_FAULT_POINT("operation.done");
  FlightRing& flight = memory.flight();
  flight.ended(outcome == Outcome::kDone ? shm::DirectRecord::State::kWell : shm::DirectRecord::State::kBadly,
               flight.wants_end() ? plan.channel->now() : Instant{0});
  MUSTER_FAULT_POINT("record.closed");
  return outcome;
}

}  // namespace muster::client
