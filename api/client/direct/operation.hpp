// One run of a collective on the direct path: arrive, agree, then each member does its own part.
#pragma once

#include "api/base/path.hpp"
#include "api/base/signature.hpp"
#include "api/client/direct/channel.hpp"
#include "api/client/direct/memory.hpp"
#include "api/client/direct/wait_policy.hpp"

#include <cstdint>
#include <vector>

namespace muster::client {

// A collective plan as its own process runs it.
struct DirectPlan {
  std::uint64_t handle = 0;
  Channel* channel = nullptr;
  Collective what;
  Share mine;  // with this process's addresses
  Signature signature;
  Choice choice;
  shm::Place home;                // of mine.source in this rank's arena: Kind::kArena
  std::vector<shm::Place> sends;  // of the first byte of each of mine.sends
  // Where blocks lie if all of them stand end to end: byte offset of this member's, for REDUCE_SCATTER.
  std::uint64_t my_offset = 0;
  bool end_to_end = false;        // and whether the source's do
  std::uint64_t given_bytes = 0;  // to the operation, and got from it, whether they move or not
  std::uint64_t got_bytes = 0;
  std::uint64_t target_bytes = 0;
  bool crowded = false;
};

enum class Outcome : std::uint8_t {
  kDone,
  kRefused,      // the epoch has ended, or nobody may begin; nothing was begun
  kBroken,       // the epoch has ended
  kDisagree,     // the members do not mean the same operation; nothing was moved
  kCorrupt,      // a peer said what cannot be
  kAlone,        // the engine is gone
  kNoMemory,     // for the copy that an operation in place needs; nothing was begun
  kInterrupted,  // and the group does not know yet
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

// Where the engine carries the operation out (choice.path), members only agree on it here: a difference that
// sends them different ways would else be found at a deadline.
//
// Thread: the session's. Bound: the policy's deadline, renewed by the engine's answer to WaitHooks::overdue.
Outcome run_direct(const DirectPlan& plan, DirectMemory& memory, Stages& stages, WaitPolicy& policy);

// An end explains that the operation failed: of its group's epoch, or for a message that its partner does not
// come.
bool explained(const DirectPlan& plan);

// What the operation waits for, or has waited for last.
const Wanted& wanted_by(const DirectPlan& plan);

// This member leaves the operation, and no end tells the others so: what they read of it from now on does not
// count.
void withdraw(const DirectPlan& plan);

}  // namespace muster::client
