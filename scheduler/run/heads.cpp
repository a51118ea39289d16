#include "scheduler/run/heads.hpp"

#include <utility>

namespace muster::scheduler {

std::vector<Head> heads_of(const Graph& graph) {
  std::vector<Head> heads;
  for (const Rank rank : graph.lanes().world().locals()) {
    const RankLanes& lanes = graph.lanes()[rank];
    if (!lanes.present()) continue;
    for (std::uint32_t lane = 0; lane < lanes.lanes(); ++lane) {
      if (!lanes.lane(lane).has_next()) continue;
      const LaneQueue::Start& start = lanes.lane(lane).next();
      Head head{rank, lane, start.request.plan, start.arrived, {}, {}};
      if (!start.arrived) {
        RankLanes::Obstacle obstacle = lanes.obstacle(lane, start, graph.lane_names());
        head.obstacle = std::move(obstacle.text);
        head.blocking_lane = obstacle.lane;
      }
      heads.push_back(std::move(head));
    }
  }
  return heads;
}

}  // namespace muster::scheduler
