// Arrivals: the announcements of a group's members at an operation, as one member sees them.
//
// Each member has two slots, which its operations use in turn; the rules are in api/shm/direct.hpp.
#pragma once

#include "api/client/direct/announced.hpp"
#include "api/client/direct/peer.hpp"
#include "api/shm/direct.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace muster::client {

// Owns    this member's position among the group's operations, its slots, and copies of all announcements.
// Thread  the session's.
// Bound   two slots, for two operations in a row; one copy for each member.
// Fails   never.
class Arrivals {
 public:
  // `own`: this member's region. `peers` outlive it.
  Arrivals(std::uint32_t index, shm::MemberRegion* own, std::span<const Peer> peers)
      : own_(own), peers_(peers), said_(peers.size()), index_(index) {}

  // The position of the present operation, or of the latest.
  std::uint64_t position() const { return position_; }
  // Sets the position: that of the next operation, or the base of a new epoch.
  void move_to(std::uint64_t position);

  // The announcement that this member prepares. of() returns it too, for this member's index.
  Announced& draft() { return said_[index_]; }
  // Room for this operation's payload behind the slot's header: kSlotPayloadBytes.
  std::byte* payload() { return own_slots() + offset_ + shm::kSlotHeaderBytes; }
  // Writes the draft into the slot. Returns the word for the position, which the caller publishes last.
  std::uint64_t* fill(std::uint64_t plan) {
    shm::DirectSlot* const slot = own_slot();
    shm::Published<std::uint64_t>(&own_->plans[position_ & 1]).store(plan);
    draft().write(slot);
    return &slot->position;
  }
  // Takes the arrival back. Peers that look at it later do not find it, and discard what they have read of
  // this member's memory in place.
  void withdraw();
  // The slot of the next operation.
  const std::byte* next_slot() { return own_slots() + (shm::kSlotBytes - offset_); }

  // The slot in which member i publishes its position and its announcement.
  const shm::DirectSlot& slot_of(std::uint32_t i) const {
    return *reinterpret_cast<const shm::DirectSlot*>(peers_[i].slots + offset_);
  }
  // Copies the announcement of member i, whose slot must show the present position.
  void take(std::uint32_t i, const shm::DirectSlot& slot) { said_[i].read(slot); }
  const Announced& of(std::uint32_t i) const { return said_[i]; }
  const std::byte* payload_of(std::uint32_t i) const {
    return peers_[i].slots + offset_ + shm::kSlotHeaderBytes;
  }

 private:
  std::byte* own_slots() { return reinterpret_cast<std::byte*>(own_) + shm::kSlotsOffset; }
  shm::DirectSlot* own_slot() { return reinterpret_cast<shm::DirectSlot*>(own_slots() + offset_); }

  shm::MemberRegion* own_;
  std::span<const Peer> peers_;
  std::vector<Announced> said_;  // by index, the own one too
  std::uint32_t index_;
  std::uint64_t position_ = 0;
  std::size_t offset_ = 0;  // of its slot
};

}  // namespace muster::client
