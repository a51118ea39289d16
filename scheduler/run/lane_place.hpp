// LanePlace: where the collectives of one group match on one lane (decision D18).
//
// A collective matches when all members on this node have arrived with its number. An EXCHANGE of a group
// that has all members on this node matches member by member: a member meets each other one with which it has
// faces, and is through when it has met all of these. So it waits for its neighbours alone, and neighbours
// are at most one number apart. When two members meet, their faces are compared before a byte between them
// moves.
#pragma once

#include "scheduler/run/epochs.hpp"
#include "scheduler/run/place.hpp"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace muster::scheduler {

// Owns    the epochs of the place, the epoch in which each member stands, and the arrivals that wait.
// Thread  the one that holds the engine lock.
// Bound   one arrival for each member.
// Fails   never: a disagreement is a kind of outcome.
class LanePlace {
 public:
  // Members are counted among those on this node, in group order. The group outlives the place.
  LanePlace(const Group& group, Epochs epochs, const std::vector<Epochs::Member>& members);

  const Epochs& epochs() const { return epochs_; }
  bool waits() const { return arrived_count_ > 0; }
  // Members that have the lane.
  void open() { ++holders_; }
  bool close() { return --holders_ == 0; }

  // ---- stamps ----------------------------------------------------------------------------------
  Stamp stamp(std::size_t member);
  // The start takes no part in the place: the member's next start there gets its number.
  void give_back(std::size_t member, const Stamp& stamp);

  // ---- meetings --------------------------------------------------------------------------------
  enum class Meeting : std::uint8_t { kWait, kGo, kDisagree };
  // For a start of the present epoch. kGo: `met` are all members, in group order. kDisagree: `differ` says in
  // what, and whoever waits still waits. An EXCHANGE by neighbours waits in any case: until meet().
  Meeting arrive(std::size_t member, const Arrival& arrival, std::vector<Arrival>& met, std::string& differ);
  // Whether somebody has arrived for an EXCHANGE by neighbours since meet().
  bool may_meet() const { return !fresh_.empty(); }
  // Those of one number meet. kGo: `met` are the first *active ones, who have arrived since, and others whom
  // they meet: the faces of the active ones move, with each other, with the others, and with themselves. Call
  // it until may_meet() is false.
  Meeting meet(std::vector<Arrival>& met, std::size_t* active, std::string& differ);
  // Takes back an arrival that waits. Returns whether it has met others: then its number is used up.
  bool withdraw(std::size_t member, const Arrival& arrival);
  // Ends the present epoch. Returns the arrivals that waited, and removes them. Does nothing if that fault
  // has ended the place before.
  std::vector<Arrival> end(const CausePtr& cause, Epochs::Why why);
  // Epochs that have ended elsewhere: the present one is `epoch` from now on.
  void skip_to(std::uint64_t epoch) { epochs_.skip_to(epoch); }

  // ---- epochs of members -----------------------------------------------------------------------
  // As MatchQueue::attached() and heard(), and GroupPlaces::move_on().
  void attached(std::size_t member, bool first);
  void heard(std::size_t member, std::uint64_t fault);
  void move_on(std::size_t member, std::uint64_t fault);

  // ---- for reports -----------------------------------------------------------------------------
  // Number of collectives at which members have met, over all epochs.
  std::uint64_t matched() const { return matched_; }
  // The number of a start of the present epoch, counted so.
  std::uint64_t number_of(const Stamp& stamp) const;
  // The latest of them; its number is 0 before the first.
  const Stamp& latest() const { return latest_; }
  // The members for which that one waits.
  std::vector<std::size_t> missing(std::size_t member) const;
  void add_waiting(std::vector<Arrival>& into) const;
  struct Pending {
    std::uint64_t number = 0;  // counted over all epochs
    std::vector<Arrival> arrived;
    std::vector<std::size_t> missing;
  };
  // The operations that wait for members.
  std::vector<Pending> pending() const;

 private:
  struct Member {
    Epochs::Member stands;
    std::uint64_t next = 1;
    std::vector<std::uint64_t> given_back{};  // numbers below `next`, rising
    Stamp through{};                          // its latest EXCHANGE by neighbours at which it has met all
    void restart() { *this = {stands, 1}; }
  };
  bool by_neighbours(const Arrival& arrival) const;
  bool waits_with(std::size_t member, const Stamp& stamp) const;
  bool is_through(std::size_t member, const Stamp& stamp) const;
  Meeting meet_all(const Arrival& arrival, std::vector<Arrival>& met, std::string& differ);
  bool meet_neighbours(std::size_t member, std::string& differ);
  std::string difference_between(const Arrival& one, const Arrival& other) const;
  void count(const Stamp& stamp);

  const Group& group_;
  Epochs epochs_;
  std::vector<Member> members_;
  std::vector<std::optional<Arrival>> arrived_;  // by member
  std::size_t arrived_count_ = 0;
  enum class Part : std::uint8_t { kNone, kActive, kPassive };
  std::vector<Part> parts_;         // by member, in the present meet()
  std::vector<std::size_t> fresh_;  // members that may meet, in the order in which they came
  std::uint64_t matched_ = 0;
  Stamp latest_{};
  std::uint32_t holders_ = 0;
};

// Whether the members mean one operation. `all` members of the group are given, or only some.
bool agreed(std::span<const Arrival> members, bool all);
// Says in which arguments these members of the group differ.
std::string difference_of(std::span<const Arrival> members, std::size_t ranks);

}  // namespace muster::scheduler
