// Payloads: how the contributions of one operation get from member to member: where this one puts its own,
// and where it reads the others'.
//
// Short contributions are copied to memory that peers may read later, because a second meeting costs more
// than the copy. Large ones are read in place, and the giver waits until all have read.
#pragma once

#include "api/client/direct/operation.hpp"

#include <cstddef>
#include <cstdint>
#include <span>

namespace muster::client {

// Owns    nothing; lives as long as one operation.
// Thread  the session's.
// Bound   a contribution of any size; a table of at most kBlocksMax offsets in front of it.
// Fails   read, block_for_me, fragment: nullptr if a peer's location is invalid, or its memory cannot be
// mapped.
class Payloads {
 public:
  Payloads(const DirectPlan& plan, DirectMemory& memory, Stages& stages, WaitPolicy& policy)
      : plan_(plan), channel_(*plan.channel), memory_(memory), stages_(stages), policy_(policy) {}

  // Arrives at the operation with the contribution of `plan.mine`: its source blocks, or nothing. kDone: all
  // have arrived and agree. kNoMemory: it has not begun. kInterrupted: it has not begun, or the group does
  // not know yet.
  [[nodiscard]] Outcome meet();
  // The same with a contribution that the caller places itself: `fill` is called once the operation has
  // begun, and returns where it lies.
  template<class Fill>
  [[nodiscard]] Outcome meet_with(Fill fill) {
    if (!channel_.begin()) return not_met(Outcome::kRefused);
    Announced& draft = channel_.arrivals().draft();
    draft = {};
    given_ = fill(&draft);
    draft.location_bits = shm::pack_location(given_);
    return not_met(client::meet(plan_, memory_, policy_));
  }

  // Bytes [offset, offset + bytes) of member i's contribution. For this member, they lie in its source.
  const std::byte* read(std::uint32_t i, std::uint64_t offset, std::uint64_t bytes);
  // The block for this member in member i's contribution, in operations that give each member its own block.
  const std::byte* block_for_me(std::uint32_t i, std::uint64_t bytes);
  // A fragment of member i's contribution for this one, in operations whose blocks lie in pieces.
  const std::byte* fragment(std::uint32_t i, const Block::Fragment& fragment);
  // Whether all that was read of member i is valid, provided that Channel::sound() holds too.
  bool intact(std::uint32_t i) const;
  // Whether all that was read of all members, and of their slots, is valid.
  bool all_intact() const;
  // Whether the stage of member i still has the announced content. `stage.index` must be below kStages.
  bool stage_intact(std::uint32_t i, shm::PayloadLocation stage) const;

  // Takes a stage for this operation. No data: the wait for its former readers was interrupted.
  Stages::Stage& take_stage() { return stage_ = stages_.take(channel_, policy_); }
  Stages::Stage& stage() { return stage_; }
  // Tells the givers that this member has read all. If its own contribution is read in place, waits until all
  // have read it.
  [[nodiscard]] Outcome end();

 private:
  Outcome prepare();
  shm::PayloadLocation announce(Announced* announced);
  // Returns the outcome as it is. If the operation did not begin, forgets the stage that was taken for it.
  Outcome not_met(Outcome outcome) {
    if (outcome != Outcome::kDone) stages_.forget_unbegun(channel_);
    return outcome;
  }
  // Whether some giver waits for its readers: at the operation's end, or before it fills its stage again.
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
