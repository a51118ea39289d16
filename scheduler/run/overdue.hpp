// The cause of a start, or a launched step, that has passed its deadline.
#pragma once

#include "scheduler/run/match_queue.hpp"
#include "scheduler/run/rank_lanes.hpp"

#include <cstdint>
#include <span>

namespace muster::scheduler {

// The cause for the lane's next start: the members that have not arrived, or the point that was not reached.
// If the start waits for another lane of its rank, the text goes on with the oldest start of that lane. The
// text tells a member whose part of a message stands behind others in its lane from a member that has
// submitted none.
Cause overdue(const MatchQueue& matches, const RankTable<RankLanes>& ranks, const LaneTable& names, Rank rank,
              std::uint32_t lane);
// The cause for a launched step that goes on outside the streams. All its members here had come, so none of
// them is to blame. `awaited`: the ranks on other nodes that the step waits for; empty: that is not known.
Cause overdue(const Step& step, Nanos deadline, std::span<const Group> groups, const LaneTable& names,
              const World& world, std::span<const Step::Awaited> awaited);

}  // namespace muster::scheduler
