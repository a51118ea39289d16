// Messages: SEND and RECV between two members on the direct path, as one member sees them.
//
// A message takes the next position of its ordered pair of members, counted from the epoch's base. The sender
// fills the slot of the pair and writes the position last. It then waits until the receiver has acknowledged
// the message, so at most one is in flight. A member that moves to a new epoch takes back what it had sent.
#pragma once

#include "api/client/direct/announced.hpp"
#include "api/client/direct/epoch_view.hpp"
#include "api/client/direct/peer.hpp"
#include "api/client/direct/waiter.hpp"

#include <cstdint>
#include <vector>

namespace muster::client {

// Owns    how many messages each pair has had in this epoch.
// Thread  the session's.
// Bound   one message to and one from each member at a time.
// Fails   never; a wait ends with a Waited.
class Messages {
 public:
  Messages(std::uint64_t group, std::uint32_t index, shm::MemberRegion* region, shm::DirectPair* pairs,
           const std::vector<Peer>& peers, const EpochView& view, Waiter& waiter);

  // The next message to member `to`.
  void send(std::uint32_t to, std::uint64_t plan, const Announced& announced);
  // kMet: the receiver is done with the message; *disagreed says whether the signatures differed.
  Waited await_received(std::uint32_t to, bool* disagreed, WaitPolicy& policy);
  // Takes back the latest message to that member, although its epoch has not ended.
  void withdraw(std::uint32_t to);

  // The next message from that member.
  Waited await(std::uint32_t from, std::uint64_t plan, Announced* message, WaitPolicy& policy);
  // Whether the message is still there, so that all that was read of it is valid.
  bool stands(std::uint32_t from) const;
  void acknowledge(std::uint32_t from, bool disagreed);

  // Numbers in this epoch, from 1, of the latest message to and from a member.
  std::uint64_t sent_to(std::uint32_t i) const { return sent_[i] - view_.base(); }
  std::uint64_t received_from(std::uint32_t i) const { return received_[i] - view_.base(); }
  // A sender waits until the member has received its latest message; a receiver, for the member's next
  // message.
  Wanted wanted_to(std::uint32_t i) const {
    return {group_, view_.epoch(), shm::DirectWait::kReceived, i, sent_[i], 0};
  }
  Wanted wanted_from(std::uint32_t i) const {
    return {group_, view_.epoch(), shm::DirectWait::kMessage, i, received_[i] + 1, 0};
  }
  // As wanted_from(), but for the latest message that this member has acknowledged.
  Wanted acknowledged_from(std::uint32_t i) const {
    return {group_, view_.epoch(), shm::DirectWait::kMessage, i, received_[i], 0};
  }

  // Moves to an epoch with that base.
  void move_on(std::uint64_t base);

 private:
  const shm::DirectSlot& inbox(std::uint32_t from) const { return peers_[from].pairs[index_].sent; }

  std::uint64_t group_;
  std::uint32_t index_;
  shm::MemberRegion* region_;
  shm::DirectPair* pairs_;
  const std::vector<Peer>& peers_;
  const EpochView& view_;
  Waiter& waiter_;
  std::vector<std::uint64_t> sent_;      // position of the latest message to each member
  std::vector<std::uint64_t> received_;  // and from each
};

}  // namespace muster::client
