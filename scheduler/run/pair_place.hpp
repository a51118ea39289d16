// PairPlace: where SEND and RECV of an ordered pair of members match (decision D18).
//
// They match by tag, on any lanes: the first unmatched send of a tag meets the first unmatched receive of
// that tag, in the order in which the engine read them. So an early receive does not hold up messages of its
// member with other tags on other lanes.
#pragma once

#include "api/base/collective/tag_counts.hpp"
#include "scheduler/run/epochs.hpp"
#include "scheduler/run/place.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace muster::scheduler {

// Owns    the epochs of the place, the epochs of its two members, and their starts that are not matched.
// Thread  the one that holds the engine lock.
// Bound   the starts of two members in flight; if they are on two nodes, a count for each tag of an epoch.
// Fails   never.
class PairPlace {
 public:
  enum class Side : std::uint8_t { kSender, kReceiver };

  // `spans`: the two members are on different nodes, and only one of them on this one.
  PairPlace(Epochs epochs, const Epochs::Member& sender, const Epochs::Member& receiver, bool spans);

  const Epochs& epochs() const { return epochs_; }

  Stamp stamp(Side side, std::uint32_t tag);
  // The start takes no part in this place: the member's next start with its tag replaces it.
  void give_back(Side side, const Stamp& stamp);
  // Removes a start whose epoch has ended.
  void forget(Side side, const Stamp& stamp);

  struct Met {
    Arrival sender;
    Arrival receiver;
  };
  // A start of the present epoch is next on its lane. Returns nothing until its partner has arrived too.
  std::optional<Met> arrive(Side side, std::uint32_t tag, const Arrival& arrival);
  // The same if the partner is on another node, where they match: the start's number among those of its tag.
  std::uint64_t arrive_from_here(Side side, const Stamp& stamp);
  // Takes back an arrival that waits.
  void withdraw(Side side, const Arrival& arrival);
  // Appends the arrivals that wait, the sender's first.
  void waiting(std::vector<Arrival>& into) const;
  // Ends the present epoch; appends the arrivals that waited to `waited`, and removes them. Does nothing if
  // that fault has ended the place before.
  void end(const CausePtr& cause, Epochs::Why why, std::vector<Arrival>& waited);

  // Epochs that have ended elsewhere: the present one is `epoch` from now on.
  void skip_to(std::uint64_t epoch) { epochs_.skip_to(epoch); }

  // As MatchQueue::attached().
  void attached(Side side, bool first);
  // The member has learned of that fault by an operation of this place: it moves on.
  void move_on(Side side, std::uint64_t fault);
  // The member has learned of that fault elsewhere: it moves on if the fault has ended this place.
  void heard(Side side, std::uint64_t fault);

 private:
  struct Message {
    std::uint64_t number = 0;
    std::uint32_t tag = 0;
    std::uint64_t ordinal = 0;  // among those of its tag, from 1; counted if the pair spans nodes
    bool given_back = false;
    std::optional<Arrival> arrived;
  };
  struct Member {
    Epochs::Member stands;
    std::uint64_t next = 1;
    std::vector<Message> open;  // by number
    TagCounts of_tags;          // starts of this epoch, if the pair spans nodes
    void restart(const Epochs::Member& now);
    Message* find(std::uint64_t number);
    void remove(std::uint64_t number);
  };
  static std::size_t at(Side side) { return side == Side::kSender ? 0 : 1; }
  Message* partner_of(Side side, const Message& mine);

  Epochs epochs_;
  bool spans_;
  std::array<Member, 2> members_;  // sender, receiver
};

}  // namespace muster::scheduler
