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

}  // namespace muster::engine
