// OpenLanes: which lanes the ranks have, and what each lane needs: a place in every group of its rank, and
// room for its steps.
#pragma once

#include "api/base/result.hpp"
#include "api/base/world.hpp"
#include "scheduler/run/lane_table.hpp"
#include "scheduler/run/match_queue.hpp"
#include "scheduler/run/rank_lanes.hpp"
#include "scheduler/run/step_table.hpp"
#include "scheduler/run/work_list.hpp"

#include <cstdint>
#include <string_view>

namespace muster::scheduler {

// Owns    the names of lanes.
// Thread  the one that holds the engine lock.
// Bound   shm::kLanesMax lanes of a rank.
// Fails   open: kDuplicate, kNoResource. close: kBadArgument, kBusy.
class OpenLanes {
 public:
  // All outlive it.
  struct Needs {
    RankTable<RankLanes>& ranks;
    MatchQueue& matches;
    StepTable& steps;
    WorkList& work_list;
  };
  // `launch_depth`: steps of one lane in flight.
  OpenLanes(Needs needs, std::uint32_t launch_depth);

  const LaneTable& names() const { return names_; }

  // Opens a lane for the rank and returns its number. An empty name: for kernels alone.
  Result<std::uint32_t> open(Rank rank, muster_lane lane_class, std::string_view name);
  // The rank gives up a lane that it has opened: none of its starts is in flight, and it is not stopped.
  Status close(Rank rank, std::uint32_t lane);
  // Its client has left.
  void close_all(Rank rank);
  // Replaces a group that nobody uses; a group without ranks leaves the id free. One of the same ranks gives
  // the group another name, also while it is used.
  void set_group(GroupId group, Group now);
  // Makes room for starts of this plan.
  void expect(const CollectiveWork& work) {
    if (work.point_to_point()) matches_[work.group].pair(place_of(work, LaneId()));
  }

 private:
  void add(GroupId group);
  void make_place(GroupId group, LaneId lane);
  void shut(Rank rank, std::uint32_t lane);
  template<class F>
  void for_each_group(Rank rank, F&& f);

  RankTable<RankLanes>& ranks_;
  MatchQueue& matches_;
  StepTable& steps_;
  WorkList& work_list_;
  std::uint32_t launch_depth_;
  LaneTable names_;
};

}  // namespace muster::scheduler
