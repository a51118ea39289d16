// Channel: one group's collectives on the direct path, as one member sees them.
//
// The protocol is described in api/shm/direct.hpp. A channel publishes this member's words, waits for those
// of others, and reports how the wait ended. It sends the engine no message, except at a deadline.
#pragma once

#include "api/base/fault_point.hpp"
#include "api/client/direct/arrivals.hpp"
#include "api/client/direct/epoch_view.hpp"
#include "api/client/direct/flight.hpp"
#include "api/client/direct/messages.hpp"
#include "api/client/direct/peer.hpp"
#include "api/client/direct/phases.hpp"
#include "api/client/direct/waiter.hpp"

#include <cstdint>
#include <span>
#include <vector>

namespace muster::client {

// Owns    this member's view of the group: epoch, arrivals, phases, messages; not the memory.
// Thread  the session's.
// Bound   one operation at a time; as many members as the group has.
// Fails   never; a wait ends with a Waited.
class Channel {
 public:
  struct Words {
    std::uint64_t group = 0;  // handle
    std::uint32_t index = 0;
    shm::DirectHeader* header = nullptr;  // this rank's own, writable
    shm::MemberRegion* region = nullptr;
    std::uint32_t line_index = 0;  // of the group page
    const shm::GroupLine* line = nullptr;
    std::uint64_t epoch = 0;  // in which this member takes part
    std::uint64_t base = 0;   // of that epoch
  };
  Channel(const Words& words, std::vector<Peer> peers, WaitHooks& hooks);
  Channel(const Channel&) = delete;
  Channel& operator=(const Channel&) = delete;

  std::uint64_t group() const { return group_; }
  std::uint32_t index() const { return index_; }
  std::uint32_t members() const { return count_; }
  const Peer& peer(std::uint32_t i) const { return peers_[i]; }
  // The group's line of the group page.
  std::uint32_t line() const { return line_; }
  const EpochView& view() const { return view_; }
  Arrivals& arrivals() { return arrivals_; }
  const Arrivals& arrivals() const { return arrivals_; }
  Phases& phases() { return phases_; }
  Messages& messages() { return messages_; }
  const Messages& messages() const { return messages_; }
  Instant now() const { return waiter_.now(); }
  std::uint32_t core() const { return waiter_.core(); }
  bool engine_gone() const { return waiter_.engine_gone(); }

  // The present operation, or the latest.
  At at() const { return {view_.epoch(), arrivals_.position()}; }
  // Its number in the epoch, from 1.
  std::uint64_t number() const { return arrivals_.position() - view_.base(); }

  // Takes the next position. False: the epoch has ended, or a member is named absent.
  [[nodiscard]] bool begin() {
    if (view_.closed()) return false;
    arrivals_.move_to(arrivals_.position() + 1);
    return true;
  }
  // Arrives at the operation that has begun, announcing the draft of the arrivals, and records it.
  void come(std::uint64_t plan, const FlightRing::Constants& constants, FlightRing& flight) {
    arrive(plan);
    MUSTER_FAULT_POINT("operation.arrived");
    // Recorded after the arrival, so that the other members do not wait for it.
    flight.began(constants, 0, view_.epoch(), number(), now());
    MUSTER_FAULT_POINT("operation.recorded");
  }
  void arrive(std::uint64_t plan) {
    std::uint64_t* word = arrivals_.fill(plan);
    MUSTER_FAULT_POINT("slot.filled");
    waiter_.publish(word, arrivals_.position(), std::span(peers_.data(), count_));
  }
  // Waits until all have arrived. kMet: the operation goes on, even if a loss ends the epoch from now on.
  // Calls `before_wait` once, before the first wait for a missing member.
  using BeforeWait = void (*)(const Channel& channel, std::uint32_t missing);
  Waited await_arrivals(WaitPolicy& policy, BeforeWait before_wait = nullptr);
  // Whether all that was read of slots so far belongs to this operation.
  bool sound() const;
  // Whether member i still waits for those who read its memory in place. If so, all that was read of that
  // memory belongs to this operation.
  bool awaits_readers(std::uint32_t i) const;
  // Counts the operations of this epoch whose result is the same at all members. It is called once they have
  // agreed, so all members count alike.
  std::uint64_t count_shared() { return ++shared_; }
  // The wait of await_arrivals(), as the engine needs it.
  Wanted wanted() const { return {group_, at().epoch, shm::DirectWait::kArrivals, 0, at().position, 0}; }

  // Moves to another epoch. The engine has told this member how its old one ended.
  void move_on(std::uint64_t epoch, std::uint64_t base);

 private:
  Waited await_arrival(const shm::DirectSlot& slot, WaitPolicy& policy);
  Waited await_count(WaitPolicy& policy);

  std::uint64_t group_;
  std::uint32_t index_;
  std::uint32_t count_;  // of members
  std::uint32_t line_;
  std::vector<Peer> peers_;
  EpochView view_;
  Waiter waiter_;
  Arrivals arrivals_;
  Phases phases_;
  Messages messages_;
  std::uint64_t shared_ = 0;
};

}  // namespace muster::client
