// MatchQueue: where collectives wait until all members of their group have come (decisions D7 and D18).
//
// A start is stamped with epoch and number when it is read. A collective matches by group, lane, epoch and
// number; how SEND and RECV match is said in pair_place.hpp. When all members have come the signatures are
// compared: what all share by one hash, what pairs share by its sum over all. Only then does anything move.
// How a place fails is the rule of Epochs.
#pragma once

#include "scheduler/run/epochs.hpp"
#include "scheduler/run/pair_place.hpp"
#include "scheduler/run/place.hpp"

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace muster::scheduler {

// Owns    the epochs of every place, where each member stands, and who waits.
// Thread  whoever holds the engine lock.
// Bound   groups × lanes places, made with the group; those of pairs when they are first used. One arrival
//         for each rank and lane.
// Fails   never: a disagreement is an end.
class MatchQueue {
 public:
  MatchQueue(std::vector<Group> groups, std::uint32_t lanes);
  // Another group in the place of one that nobody uses: no operation of it is in flight. Empty: none.
  void set_group(GroupId group, Group now);
  // What reports call it.
  void name_group(GroupId group, std::string name) { groups_[group.value].name = std::move(name); }
  std::span<const Group> groups() const { return groups_; }

  // The pair's place is there from now on, if it was not: starts take no heap.
  void expect(const Place& place) {
    if (place.is_pair()) pair(place);
  }

  // ---- stamps ----------------------------------------------------------------------------------
  Stamp stamp(const Place& place);
  // The start has no part in its place: the member's next start gets its number.
  void give_back(const Place& place, const Stamp& stamp);

  // ---- meetings --------------------------------------------------------------------------------
  using Arrival = scheduler::Arrival;
  struct Match {
    enum class Kind : std::uint8_t { kWait, kGo, kEnded, kDisagree };
    Kind kind = Kind::kWait;
    // kGo, kDisagree: all members, in group order. Valid until the next call of arrive().
    std::span<const Arrival> members;
    CausePtr cause;      // kEnded: of its epoch
    std::string differ;  // kDisagree: in what
  };
  // The start is next on its lane. kDisagree: the caller ends the place.
  Match arrive(const Arrival& arrival);
  // Takes back an arrival that waits.
  void withdraw(const Arrival& arrival);

  // ---- ends ------------------------------------------------------------------------------------
  // All return who waited at what has ended; none of them waits any more.
  //
  // Ends the present epoch of the place, unless it has ended by that fault before.
  std::vector<Arrival> end(const Place& place, const CausePtr& cause);
  // A start with that stamp will not come. If its epoch is the present one, the place ends; or if it has
  // ended by that fault before, the number is given back: the others wait for the member's next start.
  std::vector<Arrival> drop(const Place& place, const Stamp& stamp, const CausePtr& cause);
  // Ends all places of the group.
  std::vector<Arrival> end_group(GroupId group, const CausePtr& cause, Epochs::Why why);
  // Those who wait for that rank. Nothing ends.
  std::vector<Arrival> waiting_for(Rank rank) const;

  // ---- where members stand ---------------------------------------------------------------------
  // The rank has a new client, which stands in the present epochs.
  void attached(Rank rank);
  // The member has heard of that fault by an operation of this place.
  void move_on(const Place& place, std::uint64_t fault);
  // The rank has heard of that fault: it moves on at every place that has ended by it.
  void heard(Rank rank, std::uint64_t fault);

  // ---- for reports -----------------------------------------------------------------------------
  // Members of the group that have not arrived at the place, as world ranks.
  std::vector<Rank> missing(GroupId group, std::uint32_t lane) const;
  // Collectives of the place that all members have come to, over all epochs.
  std::uint64_t matched(GroupId group, std::uint32_t lane) const { return lineup(group, lane).matched; }
  // An operation that some members have come to and others not.
  struct Pending {
    GroupId group;
    std::uint32_t lane = 0;
    std::uint64_t number = 0;  // over all epochs, from 1; of a SEND or RECV its point
    std::vector<Arrival> arrived;
    std::vector<Rank> missing;
  };
  std::vector<Pending> pending() const;

 private:
  struct Member {
    std::uint64_t stands = 1;
    std::uint64_t next = 1;
    std::vector<std::uint64_t> given_back;  // numbers below `next`, rising
  };
  struct Lineup {
    Epochs epochs;
    std::vector<Member> members;                  // by index in the group
    std::vector<std::optional<Arrival>> arrived;  // by index in the group
    std::uint32_t arrived_count = 0;
    std::uint64_t matched = 0;
  };
  // What pairs that are not there yet begin with.
  struct Pairs {
    Epochs epochs;
    std::vector<Member> members;  // by index in the group
    std::map<std::pair<std::int32_t, std::int32_t>, PairPlace> used;
  };

  Lineup& lineup(GroupId group, std::uint32_t lane) { return lineups_[group.value * lanes_ + lane]; }
  const Lineup& lineup(GroupId group, std::uint32_t lane) const {
    return lineups_[group.value * lanes_ + lane];
  }
  PairPlace& pair(const Place& place);
  void open(GroupId group);
  Member& member(const Place& place) {
    return lineup(place.group, place.lane).members[static_cast<std::size_t>(place.index)];
  }
  template<class Body, class OfPair>
  void for_each_place(Rank rank, Body body, OfPair of_pair);
  static void move_on(Member& member, const Epochs& epochs, std::uint64_t fault);
  static std::vector<Arrival> end_lineup(Lineup& here, const CausePtr& cause, Epochs::Why why);
  Match complete(Lineup& here, const Group& group);
  Match arrive_at_pair(const Arrival& arrival, const Place& place);
  void settle(Match& match, const Group& group) const;

  std::uint32_t lanes_;
  std::vector<Group> groups_;
  std::vector<Lineup> lineups_;   // group · lanes + lane
  std::vector<Pairs> pairs_;      // by group
  std::vector<Arrival> members_;  // of the latest match: kept, so that an arrival needs no heap
};

}  // namespace muster::scheduler
