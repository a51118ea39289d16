// MatchQueue: the groups of a job, with the places at which their operations match.
#pragma once

#include "scheduler/run/group_places.hpp"

#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace muster::scheduler {

// Owns    the groups and their places.
// Thread  the one that holds the engine lock.
// Bound   the groups; each as GroupPlaces.
// Fails   never.
class MatchQueue {
 public:
  MatchQueue(std::vector<Group> groups, World world);
  MatchQueue(const MatchQueue&) = delete;
  MatchQueue& operator=(const MatchQueue&) = delete;

  // Replaces a group that has no operation in flight; a group without ranks leaves the id free. One of the
  // same ranks only gives it another name: false.
  bool set_group(GroupId group, Group now);
  std::span<const Group> groups() const { return groups_; }
  GroupPlaces& operator[](GroupId group) { return places_[group.value]; }
  const GroupPlaces& operator[](GroupId group) const { return places_[group.value]; }

  // A place where GroupPlaces::meet() has something to do.
  std::optional<std::pair<GroupId, LaneId>> take_unmatched() {
    if (room_.unmatched.empty()) return std::nullopt;
    const auto place = room_.unmatched.back();
    room_.unmatched.pop_back();
    return place;
  }
  std::vector<GroupPlaces::End> take_ended() { return std::exchange(room_.ended, {}); }
  // The rank has its first client in this run; or another one, or a new run begins: it stands in the present
  // epochs.
  void attached(Rank rank, bool first);
  // The rank has learned of that fault: it moves on at every place that the fault has ended.
  void heard(Rank rank, std::uint64_t fault);

  // ---- for reports -----------------------------------------------------------------------------
  // The arrivals at all places of that rank. Nothing ends.
  std::vector<Arrival> waiting_for(Rank rank) const;
  std::vector<GroupPlaces::Pending> pending() const;
  // Those of the groups that span nodes.
  std::vector<GroupPlaces::Reached> reached() const;

 private:
  GroupPlaces::Room room_;
  std::vector<Group> groups_;
  std::vector<GroupPlaces> places_;  // by group
};

}  // namespace muster::scheduler
