// What is said of a start that has passed its deadline.
#pragma once

#include "scheduler/run/match_queue.hpp"
#include "scheduler/run/rank_lanes.hpp"

#include <cstdint>

namespace muster::scheduler {

// Of the lane's next start. To blame are the members that have not come, or the point that was never reached.
// Where the start waits for another lane of its rank, the next start of that one is asked.
Cause overdue(const MatchQueue& matches, const RankLanes& lanes, Rank rank, std::uint32_t lane);

}  // namespace muster::scheduler
