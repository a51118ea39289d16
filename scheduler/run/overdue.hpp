// The cause of a start that has passed its deadline.
#pragma once

#include "scheduler/run/match_queue.hpp"
#include "scheduler/run/rank_lanes.hpp"

#include <cstdint>

namespace muster::scheduler {

// The cause for the lane's next start: the members that have not arrived, or the point that was not reached.
// If the start waits for another lane of its rank, the text goes on with the oldest start of that lane.
Cause overdue(const MatchQueue& matches, const RankLanes& lanes, const LaneTable& names, Rank rank,
              std::uint32_t lane);

}  // namespace muster::scheduler
