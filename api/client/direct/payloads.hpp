// Payloads: how the contributions of one operation get from member to member: where this one puts its own,
// and where it reads the others'.
//
// Small ones travel with the arrival. Middle ones are copied to where peers can read them at leisure, because
// a second meeting costs more than the copy. Large ones are read where they are, and the giver waits until
// all have read.
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
  Payloads(const DirectPlan& plan, DirectMemory& memory, Stages& stages, const WaitPolicy& policy)
      : plan_(plan), channel_(*plan.channel), memory_(memory), stages_(stages), policy_(policy) {}

  // Finds the place for this member's contribution and takes a stage if it needs one; before the operation
  // has begun, since it may wait. kNoMemory: there is none for it; kInterrupted.
  [[nodiscard]] Outcome prepare();
  // Arrives with the contribution of `plan.mine`: its source blocks, or nothing where it gives nothing.
  void arrive();
  // Arrives with what the caller has put into the slot's payload, or elsewhere.
  void arrive_with(shm::Place place, std::span<const std::byte> inside);

  // Bytes [offset, offset + bytes) of member i's contribution. Own: of the own source.
  const std::byte* read(std::uint32_t i, std::uint64_t offset, std::uint64_t bytes);
  // The block of member i's contribution that is for this member, where each member gets another one.
  const std::byte* block_for_me(std::uint32_t i, std::uint64_t bytes);
  // What was read of member i is what it gave, if the slots are sound too (Channel::sound).
  bool intact(std::uint32_t i) const;
  // What was read of all members, and of their slots, is what they gave.
  bool all_intact() const;
  // The stage of member i, at `stage`.index < kStages, has no other content than was said.
  bool stage_intact(std::uint32_t i, shm::Place stage) const;

  // Some member's contribution may be overwritten, or is waited for, until the others say that they are done.
  bool must_say_done() const;
  bool must_await_done() const { return given_.kind == shm::Place::Kind::kArena; }

  Stages::Stage& stage() { return stage_; }

 private:
  shm::Place choose_place(std::uint64_t bytes) const;
  std::size_t table_bytes() const;
  void write_table(bool packed);
  void pack(std::byte* to) const;
  bool move_to_scratch(std::uint64_t bytes);

  const DirectPlan& plan_;
  Channel& channel_;
  DirectMemory& memory_;
  Stages& stages_;
  const WaitPolicy& policy_;
  Stages::Stage stage_;
  shm::Place given_;
};

}  // namespace muster::client
