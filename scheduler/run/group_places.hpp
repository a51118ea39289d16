// GroupPlaces: all places of one group, where its collectives wait until all members have arrived (decisions
// D7 and D18).
//
// A start is stamped with epoch and number when it is read. A collective matches by lane, epoch and number;
// pair_place.hpp has the rule for SEND and RECV. When all members have arrived, signatures are compared
// before a byte moves: common parts by one hash, pairwise parts by a sum that must be zero. Places fail by
// the rule of epochs.hpp.
//
// The members on this node of a group that spans nodes meet here; its communicator compares the nodes. All
// its places end together, so that all nodes count the same epochs whatever places they have.
#pragma once

#include "api/base/world.hpp"
#include "scheduler/run/epochs.hpp"
#include "scheduler/run/pair_place.hpp"
#include "scheduler/run/place.hpp"

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace muster::scheduler {

// Owns    the epochs of every place, the epoch in which each member stands, and the arrivals that wait.
// Thread  the one that holds the engine lock.
// Bound   a place for each lane that a member holds, made with the lane, and one for each pair that is used.
//         One arrival for each rank and lane.
// Fails   never: a disagreement is a kind of Match.
class GroupPlaces {
 public:
  // The end of an epoch of a group that spans nodes, other than by GroupPlaces::end_up_to().
  struct End {
    GroupId group;
    std::uint64_t epoch = 0;
    CausePtr cause;
    Epochs::Why why = Epochs::Why::kOther;
  };

  // An operation at which only some members have arrived.
  struct Pending {
    GroupId group;
    LaneId lane;
    std::uint64_t number = 0;  // counted over all epochs, from 1; of a SEND or RECV its value on its lane
    std::vector<Arrival> arrived;
    std::vector<Rank> missing;
  };

  // The latest collective of a place at which all members on this node have arrived.
  struct Reached {
    GroupId group;
    LaneId lane;
    Stamp stamp;
  };

  // The places of all groups have this in common.
  struct Room {
    World world;
    std::vector<Arrival> members;  // of the latest match; kept, so that an arrival needs no heap
    std::vector<End> ended;        // since they were taken
  };

  // The group and the room outlive it.
  GroupPlaces(GroupId id, const Group& group, Room& room);
  // The group has become another one; no operation is in flight.
  void renew();

  // The member has the lane from now on, or gives it up with none of its starts in flight. A place lives as
  // long as a member has its lane, or, if the group spans nodes, as long as the group. So members that give
  // up the lane and open it again continue one count. A member that opens a lane without a place still learns
  // there of each loss that it does not know yet.
  void open_lane(LaneId lane);
  void close_lane(LaneId lane);
  // A pair's place, made if there is none, so that starts take no heap.
  PairPlace& pair(const Place& place);

  // ---- stamps ----------------------------------------------------------------------------------
  Stamp stamp(const Place& place);
  // The start takes no part in its place: the member's next start there gets its number.
  void give_back(const Place& place, const Stamp& stamp);

  // ---- meetings --------------------------------------------------------------------------------
  struct Match {
    enum class Kind : std::uint8_t { kWait, kGo, kEnded, kDisagree };
    Kind kind = Kind::kWait;
    // kGo, kDisagree: all members, in group order; of a pair the sender first. Valid until the next arrive()
    // at any group.
    std::span<const Arrival> members;  // those on this node
    std::uint64_t number = 0;          // kGo, of a group that spans nodes: for its MatchKey
    CausePtr cause;                    // kEnded: the cause of the start's epoch
    std::string differ;                // kDisagree: the arguments in which the members differ
  };
  // Call it for a start that is next on its lane. On kDisagree the caller ends the place.
  Match arrive(const Arrival& arrival);
  // Takes back an arrival that waits.
  void withdraw(const Arrival& arrival);

  // ---- ends ------------------------------------------------------------------------------------
  // All return the arrivals that waited at places that end, and remove them.
  //
  // Ends the present epoch of the place, unless that fault has ended the place before.
  std::vector<Arrival> end(const Place& place, const CausePtr& cause);
  // A start with that stamp will not arrive. If its epoch is the present one, the place ends. If the fault
  // has ended the place before, the number is given back instead, and peers wait for the member's next start.
  std::vector<Arrival> drop(const Place& place, const Stamp& stamp, const CausePtr& cause);
  // Ends all places.
  std::vector<Arrival> end_all(const CausePtr& cause, Epochs::Why why);
  // Ends all epochs of a group that spans nodes up to `epoch`, which have ended on another node.
  std::vector<Arrival> end_up_to(std::uint64_t epoch, const CausePtr& cause, Epochs::Why why);
  // The cause of an epoch of a group that spans nodes; nullptr: it has not ended, or the group does not span.
  CausePtr ended(std::uint64_t epoch) const;

  // ---- epochs of members: nothing happens for a rank that is no member ---------------------------
  // As MatchQueue::attached() and heard().
  void attached(Rank rank, bool first);
  void heard(Rank rank, std::uint64_t fault);
  // The member has learned of that fault by an operation of this place, and moves on here. Nothing happens if
  // the group spans nodes. Such a member stands in one epoch at all places of the group, and heard() alone
  // moves it on. So a member that has completed an operation gets no earlier end of another place.
  void move_on(const Place& place, std::uint64_t fault);

  // ---- for reports -----------------------------------------------------------------------------
  // Number of collectives of the place at which all members have arrived, over all epochs. 0 if no member has
  // the lane any more.
  std::uint64_t matched(LaneId lane) const;
  // Members on this node that have not arrived at the place, as world ranks.
  std::vector<Rank> missing(LaneId lane) const;
  // Each appends: the arrivals at places of that rank, at which nothing ends; operations that wait for
  // members; the latest match of each lane.
  void add_waiting_for(Rank rank, std::vector<Arrival>& into) const;
  void add_pending(std::vector<Pending>& into) const;
  void add_reached(std::vector<Reached>& into) const;

 private:
  struct Member {
    Epochs::Member stands;
    std::uint64_t next = 1;
    std::vector<std::uint64_t> given_back;  // numbers below `next`, rising
  };
  struct MatchEntry {
    Epochs epochs;
    std::vector<Member> members;                  // those on this node, in group order
    std::vector<std::optional<Arrival>> arrived;  // of these
    std::uint32_t arrived_count = 0;
    std::uint64_t matched = 0;
    Stamp latest{};             // of these; its number is 0 before the first
    std::uint32_t holders = 0;  // members that have the lane
    std::vector<Arrival> end(const CausePtr& cause, Epochs::Why why);
  };
  // The places of a group's pairs. A new one, and that of a new lane, begins with these epochs and members:
  // some members do not know yet of some losses.
  struct Pairs {
    Epochs epochs;
    std::vector<Member> members;  // by index in the group
    std::map<std::pair<std::int32_t, std::int32_t>, PairPlace> used;
  };

  MatchEntry& entry(LaneId lane) { return *entries_[lane.value]; }
  Member& member(const Place& place) {
    return entry(place.lane).members[locals_[static_cast<std::size_t>(place.index)]];
  }
  template<class Body, class OfPair>
  void for_each_place(Rank rank, Body body, OfPair of_pair);
  Match arrive_at_pair(const Arrival& arrival, const Place& place);

  const GroupId id_;
  const Group& group_;
  Room& room_;
  std::vector<std::uint32_t> locals_;                 // by index: how many members before it are on this node
  std::vector<std::unique_ptr<MatchEntry>> entries_;  // by LaneId; null: no member has the lane
  Pairs pairs_;
};

}  // namespace muster::scheduler
