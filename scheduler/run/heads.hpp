// Starts that wait on the lanes of ranks, for reports: the next one of each lane, and where others stand.
#pragma once

#include "api/base/world.hpp"
#include "scheduler/run/rank_lanes.hpp"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace muster::scheduler {

// The next start of a lane, which could not be launched yet.
struct Head {
  Rank rank;
  std::uint32_t lane = 0;
  const Plan* plan = nullptr;
  bool arrived = false;          // a collective that waits for its peers
  RankLanes::Obstacle obstacle;  // if not arrived
};
std::vector<Head> heads_of(const RankTable<RankLanes>& ranks, const LaneTable& names);

// Where a start stands that is not launched: from 1 on.
struct LanePosition {
  std::uint32_t lane = 0;
  std::size_t position = 0;
  std::string text(const RankLanes& lanes, const LaneTable& names) const;  // "position 2 of lane halo"
};
// The first collective of that group, no message, that waits on the lane.
std::optional<LanePosition> submitted(const RankLanes& lanes, std::uint32_t lane, GroupId group);
// The first start, on any lane, that is the other end of that SEND or RECV and has not met it.
std::optional<LanePosition> other_end(const RankLanes& lanes, const CollectiveWork& message);

}  // namespace muster::scheduler
