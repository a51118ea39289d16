#include "scheduler/run/open_lanes.hpp"

#include "api/base/assert.hpp"

#include <algorithm>
#include <utility>

namespace muster::scheduler {

OpenLanes::OpenLanes(Needs needs, std::uint32_t launch_depth)
    : ranks_(needs.ranks),
      matches_(needs.matches),
      steps_(needs.steps),
      work_list_(needs.work_list),
      launch_depth_(launch_depth) {
  for (const RankLanes& lanes : ranks_) {
    steps_.add(lanes.lanes() * launch_depth);
    work_list_.expect(lanes.lanes());
  }
  for (std::uint32_t g = 0; g < matches_.groups().size(); ++g) add(GroupId(g));
}

void OpenLanes::set_group(GroupId group, Group now) {
  if (!matches_.set_group(group, std::move(now))) return;
  steps_.remove(group);
  add(group);
}

// Makes the places of a group, on each lane that a member has.
void OpenLanes::add(GroupId group) {
  for (const Rank rank : matches_.groups()[group.value].ranks) {
    if (!ranks_.world().is_local(rank)) continue;
    const RankLanes& lanes = ranks_[rank];
    for (std::uint32_t lane = 0; lane < lanes.lanes(); ++lane)
      if (lanes.is_open(lane)) make_place(group, lanes.id(lane));
  }
}

void OpenLanes::make_place(GroupId group, LaneId lane) {
  if (!LaneTable::meets(lane)) return;
  matches_[group].open_lane(lane);
  const std::vector<Rank>& ranks = matches_.groups()[group.value].ranks;
  const auto is_here = [this](Rank rank) { return ranks_.world().is_local(rank); };
  steps_.add(group, lane, static_cast<std::size_t>(std::count_if(ranks.begin(), ranks.end(), is_here)));
}

template<class F>
void OpenLanes::for_each_group(Rank rank, F&& f) {
  for (std::uint32_t g = 0; g < matches_.groups().size(); ++g)
    if (matches_.groups()[g].index_of(rank)) f(GroupId(g));
}

Result<std::uint32_t> OpenLanes::open(Rank rank, muster_lane lane_class, std::string_view name) {
  RankLanes& lanes = ranks_[rank];
  MUSTER_ASSERT(lanes.present() && lane_class < MUSTER_LANE_CLASSES);
  LaneId id = LaneTable::unnamed_of(lane_class);
  if (!name.empty()) {
    MUSTER_ASSIGN_OR_RETURN(id, names_.id_of(lane_class, name));
    if (const auto other = lanes.find(id))
      return fail(Code::kDuplicate, "rank {} has a lane {} already: number {}", rank.value, names_.label(id),
                  *other);
  }
  const std::uint32_t before = lanes.lanes();
  const auto lane = lanes.open(id, lane_class);
  if (!lane)
    return fail(
        Code::kNoResource,
        "rank {} has {} lanes, all that a session may have, or work of an earlier client still runs on "
        "some; give one up by muster_lane_destroy",
        rank.value, shm::kLanesMax);
  if (*lane == before) {
    steps_.add(launch_depth_);
    work_list_.expect(1);
  }
  for_each_group(rank, [&](GroupId group) { make_place(group, id); });
  return *lane;
}

Status OpenLanes::close(Rank rank, std::uint32_t lane) {
  const RankLanes& lanes = ranks_[rank];
  if (!lanes.may_close(lane))
    return failure(Code::kBadArgument, "rank {} has not opened a lane {}", rank.value, lane);
  if (lanes.lane(lane).oldest() != nullptr || lanes.load(lane).running > 0 ||
      lanes.lane(lane).failures().stopped())
    return failure(Code::kBusy, "lane {} ({}) has starts that are not finished; wait for its latest point",
                   lane, names_.label(lanes.id(lane)));
  shut(rank, lane);
  return {};
}

void OpenLanes::close_all(Rank rank) {
  const RankLanes& lanes = ranks_[rank];
  for (std::uint32_t lane = 0; lane < lanes.lanes(); ++lane)
    if (lanes.may_close(lane)) shut(rank, lane);
}

void OpenLanes::shut(Rank rank, std::uint32_t lane) {
  const LaneId id = ranks_[rank].id(lane);
  ranks_[rank].close(lane);
  if (LaneTable::meets(id)) for_each_group(rank, [&](GroupId group) { matches_[group].close_lane(id); });
}

}  // namespace muster::scheduler
