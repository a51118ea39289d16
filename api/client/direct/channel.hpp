// Channel: one group's meetings on the direct path, as one member sees them.
//
// The protocol is described in api/shm/direct.hpp. What is here never asks the engine anything: it publishes,
// it waits, and it says whether the others came.
#pragma once

#include "api/base/clock.hpp"
#include "api/base/signature.hpp"
#include "api/client/direct/patience.hpp"
#include "api/shm/direct.hpp"
#include "api/shm/untrusted.hpp"

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace muster::client {

// A member's words as its peers see them.
struct Peer {
  std::int32_t rank = 0;  // world rank
  const shm::DirectHeader* header = nullptr;
  const std::byte* stages = nullptr;
  const shm::DirectSeat* seat = nullptr;
  const std::byte* slots = nullptr;        // two of kSlotBytes
  const std::uint64_t* life = nullptr;     // of its rank, on the group page
  const shm::DirectPair* pairs = nullptr;  // one per member of the group
};

// A copy of a slot's header: what a member said when it arrived.
struct Arrival {
  Hash128 common;
  shm::Place place;
  alignas(16) std::byte payload[shm::kInlineBytes];
};

// What a channel waits for, for who asks why it takes so long.
struct Wanted {
  shm::DirectWait kind = shm::DirectWait::kArrivals;
  std::uint32_t peer = 0;    // kMessage, kReceived: index of the other side
  std::uint64_t number = 0;  // of the operation; kMessage, kReceived: of the message
  std::uint64_t phase = 0;   // kPhase
};

// Owns    its place in the group's sequence; not the memory.
// Thread  the session's.
// Bound   two operations a slot apart; as many members as the group has.
// Fails   never; waiting ends with a Meeting.
class Channel {
 public:
  struct Words {
    std::uint64_t group = 0;  // handle
    std::uint32_t index = 0;
    shm::DirectHeader* header = nullptr;  // this rank's own, writable
    shm::DirectSeat* seat = nullptr;
    std::byte* slots = nullptr;
    shm::DirectPair* pairs = nullptr;
    const shm::GroupLine* line = nullptr;
    std::uint64_t generation = 0;  // in which this rank takes part
  };
  Channel(Words words, std::vector<Peer> peers, Vigil& vigil);

  std::uint64_t group() const { return words_.group; }
  std::uint32_t index() const { return words_.index; }
  std::uint32_t members() const { return static_cast<std::uint32_t>(peers_.size()); }
  const Peer& peer(std::uint32_t i) const { return peers_[i]; }
  std::uint64_t generation() const { return words_.generation; }
  std::uint64_t number() const { return number_; }
  const shm::GroupLine* line() const { return words_.line; }
  // Messages to and from a member in this generation.
  std::uint64_t sent_to(std::uint32_t i) const { return sent_[i]; }
  std::uint64_t received_from(std::uint32_t i) const { return received_[i]; }
  Instant now() const { return vigil_.now(); }
  bool engine_gone() const { return vigil_.engine_gone(); }

  // ---- collectives -----------------------------------------------------------------------------
  // Takes the next number. False: a verdict is due, see broken().
  [[nodiscard]] bool begin();
  // Where this operation's payload may be put: kSlotPayloadBytes.
  std::byte* payload() { return slot_bytes(number_) + shm::kSlotHeaderBytes; }
  // Says that this member has arrived, with what. At most kInlineBytes of `inside`.
  void arrive(std::uint64_t plan, const Hash128& common, shm::Place place, std::span<const std::byte> inside);
  // Waits until all have arrived; afterwards arrival(i) says with what.
  Meeting await_arrivals(Patience& patience);
  const Arrival& arrival(std::uint32_t i) const { return arrivals_[i]; }
  const std::byte* payload_of(std::uint32_t i) const {
    return peers_[i].slots + (number_ & 1) * shm::kSlotBytes + shm::kSlotHeaderBytes;
  }
  // The slot of member i still holds this operation: what was read from it counts.
  bool unchanged(std::uint32_t i) const;

  // This member leaves the operation without a verdict: what others read of it from now on does not count.
  void withdraw();

  void set_phase(std::uint64_t phase);
  Meeting await_phase(std::uint64_t phase, Patience& patience);
  // Until every peer has left operation `number` behind as far as its payloads go.
  Meeting await_departure(std::uint64_t number, Patience& patience);

  // ---- pairs -----------------------------------------------------------------------------------
  // The next message to, or from, member i.
  void send(std::uint32_t to, std::uint64_t plan, const Hash128& common, shm::Place place,
            std::span<const std::byte> inside);
  // kMet: the receiver is done with it; *disagreed says whether it meant something else.
  Meeting await_received(std::uint32_t to, bool* disagreed, Patience& patience);
  Meeting await_message(std::uint32_t from, std::uint64_t plan, Arrival* arrival, Patience& patience);
  // The next message from that member is still what was found: what was read of it counts.
  bool message_stands(std::uint32_t from) const;
  void acknowledge(std::uint32_t from, bool disagreed);
  // As withdraw(), of the latest message to that member.
  void withdraw_message(std::uint32_t to);

  // Counts an operation whose result all members share, of this generation: all have counted as many when
  // they have agreed on as many operations, and begin anew when they hear of the generation's end.
  std::uint64_t count_shared() { return ++shared_; }

  const Wanted& wanted() const { return wanted_; }

  // ---- verdicts --------------------------------------------------------------------------------
  // The group has a verdict that this member has not taken, or takes nobody.
  bool broken() const;
  // A message to or from member i can no longer pass: the generation has ended, or that member will not come.
  // Who else will not come is no matter to the two.
  bool parted(std::uint32_t i) const;
  // This member's present operation does not count: the generation ended before all had arrived at it.
  bool late() const;
  // The group has a verdict, and member i has heard of it, is gone, or hears of it wherever it is: it does
  // not wait for this one any more. What was read of its memory before this was asked, and before unchanged()
  // or its like was, is what it gave, if both say so.
  bool let_go(std::uint32_t i) const;
  // The generation whose verdict is due, once taken: begins anew in the present one, if that is another.
  std::uint64_t take_verdict();

 private:
  template<class Reached, class Hopeless>
  Meeting wait(const std::uint64_t* word, Reached reached, Hopeless hopeless, Patience& patience);
  template<class Reached, class Hopeless>
  std::optional<Meeting> glance(const std::uint64_t* word, Reached reached, Hopeless hopeless,
                                Patience& patience);
  template<class Reached>
  void nap(const std::uint64_t* word, Reached reached, Patience& patience);
  std::byte* slot_bytes(std::uint64_t number) { return words_.slots + (number & 1) * shm::kSlotBytes; }
  const shm::DirectSlot* slot_of(std::uint32_t i) const;
  bool copy_arrival(const shm::DirectSlot* slot, std::uint64_t number, Arrival* arrival) const;
  // Wakes who of the listeners sleeps.
  void publish(std::uint64_t* word, std::uint64_t value, std::span<const Peer> listeners);
  std::uint64_t* own_progress() { return &words_.seat->progress[words_.generation & 1]; }
  bool ended() const;
  bool revoked() const;
  void renew(std::uint64_t* number, std::uint64_t* generation) const;
  bool stands(const std::uint64_t* word, std::uint64_t number, const std::uint64_t* generation) const;
  Meeting await_progress(std::uint64_t target, Patience& patience);

  Words words_;
  std::vector<Peer> peers_;
  std::vector<Arrival> arrivals_;
  std::vector<std::uint64_t> lives_;     // of each member, when it had arrived
  std::vector<std::uint64_t> sent_;      // messages to each member in this generation
  std::vector<std::uint64_t> received_;  // and from each
  // Words that were last written in an older generation.
  struct Outdated {
    bool sent = true;
    bool received = true;
  };
  std::vector<Outdated> outdated_;  // by member
  std::array<bool, 2> outdated_slots_{true, true};
  bool enrolled_;  // publishing needs no fence of its own
  Vigil& vigil_;
  Wanted wanted_;
  std::uint64_t number_ = 0;
  std::uint64_t shared_ = 0;  // of them, as far as they were counted
};

}  // namespace muster::client
