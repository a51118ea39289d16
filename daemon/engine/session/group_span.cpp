#include "daemon/engine/session/group_span.hpp"

#include <algorithm>

namespace muster::engine {

transport::Span span_of(const scheduler::Group& group, const World& world) {
  transport::Span span;
  span.group = group.key;
  span.nodes.clear();
  for (const Rank rank : group.ranks) span.nodes.push_back(world.node_of(rank));
  std::sort(span.nodes.begin(), span.nodes.end());
  span.nodes.erase(std::unique(span.nodes.begin(), span.nodes.end()), span.nodes.end());
  const auto index = [&](NodeIndex node) {
    const auto at = std::lower_bound(span.nodes.begin(), span.nodes.end(), node);
    return static_cast<std::uint32_t>(at - span.nodes.begin());
  };
  for (const Rank rank : group.ranks) span.node_of.push_back(index(world.node_of(rank)));
  span.here = index(world.here());
  return span;
}

Result<std::unique_ptr<transport::Communicator>> open_communicator(const scheduler::Group& group,
                                                                   const RankTable<device::Device*>& devices,
                                                                   const transport::Factories& factories) {
  std::vector<device::Device*> here;
  for (const Rank rank : group.ranks)
    if (devices.world().is_local(rank)) here.push_back(devices[rank]);
  return transport::open_in(factories, span_of(group, devices.world()), here);
}

}  // namespace muster::engine
