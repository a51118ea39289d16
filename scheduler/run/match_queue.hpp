// MatchQueue: collectives wait in it until all members of their group have arrived (decisions D7 and D18).
//
// A start is stamped with epoch and number when it is read. A collective matches by group, lane, epoch and
// number; pair_place.hpp has the rule for SEND and RECV. When all members have arrived, signatures are
// compared before a byte moves: common parts by one hash, pairwise parts by a sum that must be zero. Places
// fail by the rule of epochs.hpp.
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
// Bound   a place for each group and each lane that a member holds, made with the group or the lane, and one
//         for each pair that is used. One arrival for each rank and lane.
// Fails   never: a disagreement is a kind of Match.
class MatchQueue {
 public:
  MatchQueue(std::vector<Group> groups, World world);
  // Replaces a group that has no operation in flight; a group without ranks leaves the id free. One of the
  // same ranks only gives it another name.
  void set_group(GroupId group, Group now);
  std::span<const Group> groups() const { return groups_; }

  // The member has the lane from now on, or gives it up with none of its starts in flight. A place lives as
  // long as a member has its lane, or, if the group spans nodes, as long as the group. So members that give
  // up the lane and open it again continue one count. A member that opens a lane without a place still learns
  // there of each loss that it does not know yet.
  void open_lane(GroupId group, LaneId lane);
  void close_lane(GroupId group, LaneId lane);

  // A pair's place, made if there is none, so that starts take no heap.
  PairPlace& pair(const Place& place);

  // ---- stamps ----------------------------------------------------------------------------------
  Stamp stamp(const Place& place);
  // The start takes no part in its place: the member's next start there gets its number.
  void give_back(const Place& place, const Stamp& stamp);

  // ---- meetings --------------------------------------------------------------------------------
  using Arrival = scheduler::Arrival;
  struct Match {
    enum class Kind : std::uint8_t { kWait, kGo, kEnded, kDisagree };
    Kind kind = Kind::kWait;
    // kGo, kDisagree: all members, in group order; of a pair the sender first. Valid until the next arrive().
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
  // end(), drop() and end_group() return the arrivals that waited at places that end, and remove them.
  //
  // Ends the present epoch of the place, unless that fault has ended the place before.
  std::vector<Arrival> end(const Place& place, const CausePtr& cause);
  // A start with that stamp will not arrive. If its epoch is the present one, the place ends. If the fault
  // has ended the place before, the number is given back instead, and peers wait for the member's next start.
  std::vector<Arrival> drop(const Place& place, const Stamp& stamp, const CausePtr& cause);
  // Ends all places of the group.
  std::vector<Arrival> end_group(GroupId group, const CausePtr& cause, Epochs::Why why);
  // The arrivals at all places of that rank. Nothing ends.
  std::vector<Arrival> waiting_for(Rank rank) const;

  // Ends all epochs of a group that spans nodes up to `epoch`, which have ended on another node.
  std::vector<Arrival> end_up_to(GroupId group, std::uint64_t epoch, const CausePtr& cause, Epochs::Why why);
  // The cause of an epoch of a group that spans nodes; nullptr: it has not ended, or the group does not span.
  CausePtr ended(GroupId group, std::uint64_t epoch) const;
  // Ends of groups that span nodes, other than by end_up_to().
  struct Ended {
    GroupId group;
    std::uint64_t epoch = 0;
    CausePtr cause;
    Epochs::Why why = Epochs::Why::kOther;
  };
  std::vector<Ended> take_ended() { return std::exchange(ended_, {}); }

  // ---- epochs of members -----------------------------------------------------------------------
  // The rank has its first client in this run; or another one, or a new run begins: it stands in the present
  // epochs.
  void attached(Rank rank, bool first);
  // The member has learned of that fault by an operation of this place, and moves on here. Nothing happens if
  // the group spans nodes. Such a member stands in one epoch at all places of the group, and heard() alone
  // moves it on. So a member that has completed an operation gets no earlier end of another place.
  void move_on(const Place& place, std::uint64_t fault);
  // The rank has learned of that fault: it moves on at every place that the fault has ended.
  void heard(Rank rank, std::uint64_t fault);

  // ---- for reports -----------------------------------------------------------------------------
  // Members of the group on this node that have not arrived at the place, as world ranks.
  std::vector<Rank> missing(GroupId group, LaneId lane) const;
  // Number of collectives of the place at which all members have arrived, over all epochs. 0 if no member has
  // the lane any more.
  std::uint64_t matched(GroupId group, LaneId lane) const;
  // The latest collective of a place at which all members on this node have arrived.
  struct Reached {
    GroupId group;
    LaneId lane;
    Stamp stamp;
  };
  // Those of the groups that span nodes.
  std::vector<Reached> reached() const;
  // An operation at which only some members have arrived.
  struct Pending {
    GroupId group;
    LaneId lane;
    std::uint64_t number = 0;  // counted over all epochs, from 1; of a SEND or RECV its value on its lane
    std::vector<Arrival> arrived;
    std::vector<Rank> missing;
  };
  std::vector<Pending> pending() const;

 private:
  struct Member {
    MemberEpoch stands;
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
  using Lineups = std::vector<std::unique_ptr<MatchEntry>>;  // by LaneId; null: no member has the lane
  // The places of a group's pairs. A new one, and that of a new lane, begins with these epochs and members:
  // some members do not know yet of some losses.
  struct Pairs {
    Epochs epochs;
    std::vector<Member> members;  // by index in the group
    std::map<std::pair<std::int32_t, std::int32_t>, PairPlace> used;
  };

  MatchEntry& entry(GroupId group, LaneId lane) { return *entries_[group.value][lane.value]; }
  void open(GroupId group);
  Member& member(const Place& place) {
    return entry(place.group, place.lane)
        .members[locals_[place.group.value][static_cast<std::size_t>(place.index)]];
  }
  template<class Body, class OfPair>
  void for_each_place(Rank rank, Body body, OfPair of_pair);
  Match complete(MatchEntry& here, const Group& group);
  Match arrive_at_pair(const Arrival& arrival, const Place& place);
  void decide(Match& match, const Group& group) const;

  World world_;
  std::vector<Group> groups_;
  std::vector<std::vector<std::uint32_t>> locals_;  // by group and index: how many before it are on this node
  std::vector<Lineups> entries_;                    // by group
  std::vector<Pairs> pairs_;                        // by group
  std::vector<Arrival> members_;  // of the latest match; kept, so that an arrival needs no heap
  std::vector<Ended> ended_;
};

}  // namespace muster::scheduler
