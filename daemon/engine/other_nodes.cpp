#include "daemon/engine/other_nodes.hpp"

#include "api/base/log.hpp"

#include <algorithm>

namespace muster::engine {

void OtherNodes::lose(NodeIndex node, const Status& why) {
  backend_.lose(node, why);
  const std::lock_guard lock(lock_);
  hear(clock_.now());
  slots_.wake_clients();
}

std::vector<std::pair<NodeIndex, Status>> OtherNodes::take_lost() {
  const std::lock_guard lock(lock_);
  return std::exchange(lost_, {});
}

// Another node may have told of the same loss first. Then its end has begun an epoch that nobody has used,
// and that goes on: who has heard of the loss hears of it once.
void OtherNodes::hear(Instant now) {
  backend_.take_ended([&](const transport::EpochEnd& end) { graph_.ended_elsewhere(end, now); });
  backend_.take_lost([&](NodeIndex node, const Status& why) {
    MUSTER_LOG(kWarning, "engine", "job {}: {}", spec_.name, why.message());
    const World& world = spec_.world;
    const auto is_there = [&](Rank rank) { return world.node_of(rank) == node; };
    std::vector<GroupId> groups;
    for (std::uint32_t g = 0; g < graph_.groups().size(); ++g) {
      const scheduler::Group& group = graph_.groups()[g];
      const bool has_members = std::any_of(group.ranks.begin(), group.ranks.end(), is_there);
      if (has_members && group.spans() && backend_.in_use(group.key)) groups.emplace_back(g);
    }
    // One fault for all groups: its culprit is the first rank of the node.
    std::int32_t first = 0;
    while (!is_there(Rank(static_cast<std::uint32_t>(first)))) ++first;
    graph_.abort(groups, {Code::kPeerLost, first, why.message()}, now, scheduler::Epochs::Why::kLoss);
    lost_.emplace_back(node, why);
  });
}

}  // namespace muster::engine
