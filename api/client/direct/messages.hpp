// Messages: SEND and RECV between two members on the direct path, as one member sees them.
//
// A message takes the next position of its pair, counted from the epoch's base. The sender fills the slot of
// the pair and writes the position last; it waits until the receiver has acknowledged the message, so at most
// one is under way. What was sent in an epoch that has ended is taken away.
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
  // kMet: the receiver is done with it; *disagreed says whether it meant something else.
  Waited await_received(std::uint32_t to, bool* disagreed, WaitPolicy& policy);
  // Nobody is to read the latest message to that member, though no epoch ends.
  void withdraw(std::uint32_t to);

  // The next message from that member.
  Waited await(std::uint32_t from, std::uint64_t plan, Announced* message, WaitPolicy& policy);
  // It is still what was found: what was read of it counts.
  bool stands(std::uint32_t from) const;
  void acknowledge(std::uint32_t from, bool disagreed);

  // Numbers in this epoch, from 1, of the latest message to and from a member.
  std::uint64_t sent_to(std::uint32_t i) const { return sent_[i] - view_.base(); }
  std::uint64_t received_from(std::uint32_t i) const { return received_[i] - view_.base(); }
  // That the latest message to a member is received, and that the next one from it comes.
  Wanted wanted_to(std::uint32_t i) const {
    return {group_, view_.epoch(), shm::DirectWait::kReceived, i, sent_[i], 0};
  }
  Wanted wanted_from(std::uint32_t i) const {
    return {group_, view_.epoch(), shm::DirectWait::kMessage, i, received_[i] + 1, 0};
  }
  // The latest message that was acknowledged, as its receiver waited for it.
  Wanted acknowledged_from(std::uint32_t i) const {
    return {group_, view_.epoch(), shm::DirectWait::kMessage, i, received_[i], 0};
  }

  // The member goes on in an epoch with that base.
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
