// GroupPlaces: all places of one group, where its collectives wait until all members have arrived (decisions
// D7 and D18).
//
// A start is stamped with epoch and number when it is read. A collective matches by lane, epoch and number
// (lane_place.hpp); pair_place.hpp has the rule for SEND and RECV. When members meet, signatures are compared
// before a byte moves: common parts by one hash, pairwise parts by a sum that must be zero. Places fail by
// the rule of epochs.hpp.
//
// The members on this node of a group that spans nodes meet here; its communicator compares the nodes. All
// its places end together, so that all nodes count the same epochs whatever places they have.
#pragma once

#include "api/base/world.hpp"
#include "scheduler/run/epochs.hpp"
#include "scheduler/run/lane_place.hpp"
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
    std::uint64_t number = 0;  // LanePlace::number_of(); of a SEND or RECV its value on its lane
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
    std::vector<std::pair<GroupId, LaneId>> unmatched;  // where meet() has something to do
    std::size_t lanes = 0;                              // places that were made
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
    // kGo: as LanePlace::arrive() says; of a pair the sender first. Valid until the next arrive() at any
    // group.
    std::span<const Arrival> members{};  // those on this node
    std::size_t active = 0;              // kGo, of an EXCHANGE by neighbours: LanePlace::meet()
    std::uint64_t number = 0;            // kGo, of a group that spans nodes: for its MatchKey
    CausePtr cause{};                    // kEnded: the cause of the start's epoch
    std::string differ{};                // kDisagree: the arguments in which the members differ
  };
  // Call it for a start that is next on its lane. On kDisagree the caller ends the place.
  Match arrive(const Arrival& arrival);
  // As LanePlace::meet(). kWait: nothing is left to do.
  Match meet(LaneId lane);
  // Takes back an arrival that waits. Returns whether it has met others: then its number is used up, and
  // drop() must end the place.
  bool withdraw(const Arrival& arrival);

  // ---- ends ------------------------------------------------------------------------------------
  // All return the arrivals that waited at places that end, and remove them.
  //
  // Ends the present epoch of the place, unless that fault has ended the place before.
  std::vector<Arrival> end(const Place& place, const CausePtr& cause);
  // A start with that stamp will not arrive. If its epoch is the present one, the place ends. If the fault
  // has ended the place before, the number is given back instead, and peers wait for the member's next start.
  std::vector<Arrival> drop(const Place& place, const Stamp& stamp, const CausePtr& cause);
  bool ended_by(const Place& place, std::uint64_t fault);
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
  // As LanePlace::matched() and number_of(). 0 if no member has the lane any more.
  std::uint64_t matched(LaneId lane) const;
  std::uint64_t number_of(LaneId lane, const Stamp& stamp) const;
  // Members on this node for which the place's member waits there, as world ranks.
  std::vector<Rank> missing(const Place& place) const;
  // Each appends: the arrivals at places of that rank, at which nothing ends; operations that wait for
  // members; the latest match of each lane.
  void add_waiting_for(Rank rank, std::vector<Arrival>& into) const;
  void add_pending(std::vector<Pending>& into) const;
  void add_reached(std::vector<Reached>& into) const;

 private:
  // The places of a group's pairs. A new one, and that of a new lane, begins with these epochs and members:
  // some members do not know yet of some losses.
  struct Pairs {
    Epochs epochs;
    std::vector<Epochs::Member> members;  // by index in the group
    std::map<std::pair<std::int32_t, std::int32_t>, PairPlace> used;
  };

  LanePlace& on_lane(LaneId lane) { return *lanes_[lane.value]; }
  const LanePlace* find(LaneId lane) const;
  std::size_t local(std::int32_t index) const { return locals_[static_cast<std::size_t>(index)]; }
  Rank rank_of(std::size_t local) const;
  template<class Body>
  void for_each_pair(std::size_t index, Body body);
  Match arrive_at_pair(const Arrival& arrival, const Place& place);

  const GroupId id_;
  const Group& group_;
  Room& room_;
  std::vector<std::uint32_t> locals_;              // by index: how many members before it are on this node
  std::vector<std::unique_ptr<LanePlace>> lanes_;  // by LaneId; null: no member has the lane
  Pairs pairs_;
};

}  // namespace muster::scheduler
