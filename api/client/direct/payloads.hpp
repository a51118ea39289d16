// Payloads: how the contributions of one operation get from member to member: where this one puts its own,
// and where it reads the others'.
//
// Short ones are copied to where peers can read them at leisure, because a second meeting costs more than the
// copy. Large ones are read where they are, and the giver waits until all have read.
#pragma once

#include "api/client/direct/operation.hpp"

#include <cstddef>
#include <cstdint>
#include <span>

namespace muster::client {

// Owns    nothing; lives as long as one operation.
// Thread  the session's.
// Bound   a contribution of any size; a table of offsets in front of it of kBlocksMax members.
// Fails   read and block_of: nullptr, a peer said what cannot be.
class Payloads {
 public:
  Payloads(const DirectPlan& plan, DirectMemory& memory, Stages& stages, WaitPolicy& policy)
      : plan_(plan), channel_(*plan.channel), memory_(memory), stages_(stages), policy_(policy) {}

  // Comes to the operation with the contribution of `plan.mine`: its source blocks, or nothing where it gives
  // nothing. kDone: all have come and agree. kNoMemory, kInterrupted: it has not begun.
  [[nodiscard]] Outcome meet();
  // The same, with what the caller has put elsewhere: `fill` is called when the operation has begun, and says
  // where.
  template<class Fill>
  [[nodiscard]] Outcome meet_with(Fill fill) {
    if (!channel_.begin()) return not_met(Outcome::kRefused);
    Announced& draft = channel_.arrivals().draft();
    draft = {};
    given_ = fill(&draft);
    draft.location_bits = shm::pack_location(given_);
    return not_met(client::meet(plan_, memory_, policy_));
  }

  // Bytes [offset, offset + bytes) of member i's contribution. Own: of the own source.
  const std::byte* read(std::uint32_t i, std::uint64_t offset, std::uint64_t bytes);
  // The block of member i's contribution that is for this member, where each member gets another one.
  const std::byte* block_for_me(std::uint32_t i, std::uint64_t bytes);
  // What was read of member i is what it gave, if the slots are sound too (Channel::sound).
  bool intact(std::uint32_t i) const;
  // What was read of all members, and of their slots, is what they gave.
  bool all_intact() const;
  // The stage of member i, at `stage`.index < kStages, has no other content than was said.
  bool stage_intact(std::uint32_t i, shm::PayloadLocation stage) const;

  // The stage of this member, where it takes one; no data: the wait for its readers was interrupted.
  Stages::Stage& take_stage() { return stage_ = stages_.take(channel_, policy_); }
  Stages::Stage& stage() { return stage_; }
  // Who is still waited for is done: all have read what this member gave.
  [[nodiscard]] Outcome end();

 private:
  Outcome prepare();
  shm::PayloadLocation announce(Announced* announced);
  // As it is, but for a stage: nobody reads it in an operation that has not begun.
  Outcome not_met(Outcome outcome) {
    if (outcome != Outcome::kDone) stages_.forget_unbegun(channel_);
    return outcome;
  }
  // Some member's contribution may be overwritten, or is waited for, until the others say that they are done.
  bool must_say_done() const;
  shm::PayloadLocation choose_location(std::uint64_t bytes) const;
  std::size_t table_bytes() const;
  void write_table(bool packed);
  void pack(std::byte* to) const;
  bool move_to_scratch(std::uint64_t bytes);

  const DirectPlan& plan_;
  Channel& channel_;
  DirectMemory& memory_;
  Stages& stages_;
  WaitPolicy& policy_;
  Stages::Stage stage_;
  shm::PayloadLocation given_;
};

}  // namespace muster::client
