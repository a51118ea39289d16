// Channel: one group's collectives on the direct path, as one member sees them.
//
// The protocol is described in api/shm/direct.hpp. What is here never asks the engine anything: it publishes,
// it waits, and it says whether the others came.
#pragma once

#include "api/client/direct/epoch_view.hpp"
#include "api/client/direct/flight.hpp"
#include "api/client/direct/messages.hpp"
#include "api/client/direct/peer.hpp"
#include "api/client/direct/waiter.hpp"

#include <cstdint>
#include <span>
#include <vector>

namespace muster::client {

// Owns    its position among the group's operations; not the memory.
// Thread  the session's.
// Bound   two operations a slot apart; as many members as the group has.
// Fails   never; a wait ends with a Waited.
class Channel {
 public:
  struct Words {
    std::uint64_t group = 0;  // handle
    std::uint32_t index = 0;
    shm::DirectHeader* header = nullptr;  // this rank's own, writable
    shm::DirectSeat* seat = nullptr;
    std::byte* slots = nullptr;
    shm::DirectPair* pairs = nullptr;
    std::uint32_t line_index = 0;  // of the group page
    const shm::GroupLine* line = nullptr;
    std::uint64_t epoch = 0;  // in which this member takes part
    std::uint64_t base = 0;   // of that epoch
  };
  Channel(const Words& words, std::vector<Peer> peers, WaitHooks& hooks);
  Channel(const Channel&) = delete;
  Channel& operator=(const Channel&) = delete;

  std::uint64_t group() const { return words_.group; }
  std::uint32_t index() const { return words_.index; }
  std::uint32_t members() const { return count_; }
  const Peer& peer(std::uint32_t i) const { return peers_[i]; }
  // Of the group, on the group page.
  std::uint32_t line() const { return words_.line_index; }
  const EpochView& view() const { return view_; }
  Messages& messages() { return messages_; }
  const Messages& messages() const { return messages_; }
  Instant now() const { return waiter_.now(); }
  bool engine_gone() const { return waiter_.engine_gone(); }

  // The present operation, or the latest.
  At at() const { return {view_.epoch(), position_}; }
  // Its number in the epoch, from 1.
  std::uint64_t number() const { return position_ - view_.base(); }

  // Takes the next position. False: the epoch has ended, or a member is named absent.
  [[nodiscard]] bool begin() {
    if (view_.closed()) return false;
    ++position_;
    return true;
  }
  // Where this operation's payload may be put: kSlotPayloadBytes.
  std::byte* payload() { return slot(position_) + shm::kSlotHeaderBytes; }
  // What this member is about to announce: afterwards its own arrival().
  Announced& draft() { return arrivals_[words_.index]; }
  // Comes to the operation that has begun, with its draft: arrives, writes it down, and waits until all have
  // arrived; afterwards arrival(i) says with what. kMet: the operation goes on, also if the epoch ends from
  // now on by a loss.
  Waited meet(std::uint64_t plan, const FlightRing::Constants& constants, FlightRing& flight,
              WaitPolicy& policy);
  // The two halves of meet().
  void arrive(std::uint64_t plan);
  Waited await_arrivals(WaitPolicy& policy);
  const Announced& arrival(std::uint32_t i) const { return arrivals_[i]; }
  const std::byte* payload_of(std::uint32_t i) const {
    return peers_[i].slots + (position_ & 1) * shm::kSlotBytes + shm::kSlotHeaderBytes;
  }
  // What was read of slots so far is what the others gave to this operation.
  bool sound() const;
  // Member i waits for those who read its memory for this operation: what was read of it is what it gave.
  bool awaits_readers(std::uint32_t i) const;
  // This member leaves the operation though no epoch ends: what others read of it from now on does not count.
  void withdraw();

  void set_phase(std::uint64_t phase);
  // Until all members have come to the phase of this operation.
  Waited await_phase(std::uint64_t phase, WaitPolicy& policy);
  // Until nobody reads any more what this member gave to operation `at`, or to its phases up to that one: the
  // others have come to the phase, or have left the operation in another way.
  Waited await_readers(At at, std::uint64_t phase, WaitPolicy& policy);

  // Counts an operation whose result all members share, of this epoch: all have counted as many when they
  // have agreed on as many operations.
  std::uint64_t count_shared() { return ++shared_; }
  // The meeting of the present operation.
  Wanted wanted() const { return {words_.group, at().epoch, shm::DirectWait::kArrivals, 0, position_, 0}; }

  // The member has heard how its epoch ended, and goes on in another one.
  void move_on(std::uint64_t epoch, std::uint64_t base);

 private:
  std::byte* slot(std::uint64_t position) { return words_.slots + (position & 1) * shm::kSlotBytes; }
  const shm::DirectSlot* slot_of(std::uint32_t i) const;
  Waited await_arrival(const shm::DirectSlot& slot, WaitPolicy& policy);
  Waited await_count(WaitPolicy& policy);

  Words words_;
  std::vector<Peer> peers_;
  EpochView view_;
  Waiter waiter_;
  Messages messages_;
  std::vector<Announced> arrivals_;  // by index, the own one too
  std::uint32_t count_;              // of members
  std::uint64_t position_ = 0;
  std::uint64_t shared_ = 0;
};

}  // namespace muster::client
