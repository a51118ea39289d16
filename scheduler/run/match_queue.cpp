#include "scheduler/run/match_queue.hpp"

#include <utility>

namespace muster::scheduler {

MatchQueue::MatchQueue(std::vector<Group> groups, World world)
    : room_{std::move(world), {}, {}, {}, 0}, groups_(std::move(groups)) {
  places_.reserve(groups_.size());
  for (std::uint32_t g = 0; g < groups_.size(); ++g) places_.emplace_back(GroupId(g), groups_[g], room_);
}

bool MatchQueue::set_group(GroupId group, Group now) {
  const bool renamed = now.ranks == groups_[group.value].ranks;
  groups_[group.value] = std::move(now);
  if (!renamed) places_[group.value].renew();
  return !renamed;
}

void MatchQueue::attached(Rank rank, bool first) {
  for (GroupPlaces& places : places_) places.attached(rank, first);
}

void MatchQueue::heard(Rank rank, std::uint64_t fault) {
  for (GroupPlaces& places : places_) places.heard(rank, fault);
}

std::vector<Arrival> MatchQueue::waiting_for(Rank rank) const {
  std::vector<Arrival> waiting;
  for (const GroupPlaces& places : places_) places.add_waiting_for(rank, waiting);
  return waiting;
}

std::vector<GroupPlaces::Pending> MatchQueue::pending() const {
  std::vector<GroupPlaces::Pending> all;
  for (const GroupPlaces& places : places_) places.add_pending(all);
  return all;
}

std::vector<GroupPlaces::Reached> MatchQueue::reached() const {
  std::vector<GroupPlaces::Reached> all;
  for (std::uint32_t g = 0; g < groups_.size(); ++g)
    if (groups_[g].spans()) places_[g].add_reached(all);
  return all;
}

}  // namespace muster::scheduler
