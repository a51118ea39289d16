#include "scheduler/run/heads.hpp"

#include <fmt/format.h>

namespace muster::scheduler {
namespace {

template<class Is>
std::optional<LanePosition> first_on(const RankLanes& lanes, std::uint32_t lane, Is is) {
  const LaneQueue& queue = lanes.lane(lane);
  for (std::size_t i = 0; i < queue.waiting(); ++i) {
    const CollectiveWork* work = queue.waiting(i).request.plan->collective();
    if (work != nullptr && is(*work)) return LanePosition{lane, i + 1};
  }
  return std::nullopt;
}

}  // namespace

std::vector<Head> heads_of(const RankTable<RankLanes>& ranks, const LaneTable& names) {
  std::vector<Head> heads;
  for (const Rank rank : ranks.world().locals()) {
    const RankLanes& lanes = ranks[rank];
    for (std::uint32_t lane = 0; lanes.present() && lane < lanes.lanes(); ++lane) {
      if (!lanes.lane(lane).has_next()) continue;
      const LaneQueue::Start& start = lanes.lane(lane).next();
      Head& head = heads.emplace_back(Head{rank, lane, start.request.plan, start.arrived, {}});
      if (!start.arrived) head.obstacle = lanes.obstacle(lane, start, names);
    }
  }
  return heads;
}

std::optional<LanePosition> submitted(const RankLanes& lanes, std::uint32_t lane, GroupId group) {
  return first_on(lanes, lane, [group](const CollectiveWork& work) {
    return work.group == group && !work.point_to_point();
  });
}

std::optional<LanePosition> other_end(const RankLanes& lanes, const CollectiveWork& message) {
  const Collective& one = message.collective;
  for (std::uint32_t lane = 0; lane < lanes.lanes(); ++lane) {
    const auto found = first_on(lanes, lane, [&](const CollectiveWork& work) {
      const Collective& other = work.collective;
      return work.group == message.group && work.point_to_point() && other.op != one.op &&
             other.root == one.root && other.receiver == one.receiver && other.tag == one.tag;
    });
    if (found) return found;
  }
  return std::nullopt;
}

std::string LanePosition::text(const RankLanes& lanes, const LaneTable& names) const {
  return fmt::format("position {} of lane {}", position, names.label(lanes.id(lane)));
}

}  // namespace muster::scheduler
