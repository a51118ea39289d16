#include "api/base/world.hpp"

#include "api/base/words.hpp"

#include <algorithm>

namespace muster {

std::shared_ptr<const World::Table> World::table_of(std::vector<std::string> nodes,
                                                    std::vector<std::uint32_t> node_of, NodeIndex here) {
  auto table = std::make_shared<Table>();
  table->nodes = std::move(nodes);
  table->here = here;
  table->node_of = std::move(node_of);
  table->local_of.assign(table->node_of.size(), kRemote);
  for (std::uint32_t rank = 0; rank < table->node_of.size(); ++rank) {
    if (table->node_of[rank] != here.value) continue;
    table->local_of[rank] = static_cast<std::uint32_t>(table->locals.size());
    table->locals.push_back(Rank(rank));
  }
  return table;
}

World::World(std::uint32_t ranks)
    : table_(table_of({std::string()}, std::vector<std::uint32_t>(ranks, 0), NodeIndex(0))) {}

Result<World> World::build(std::vector<std::string> nodes, std::span<const std::uint32_t> node_of,
                           NodeIndex here) {
  for (std::size_t n = 0; n < nodes.size(); ++n)
    if (std::find(nodes.begin(), nodes.begin() + static_cast<std::ptrdiff_t>(n), nodes[n]) !=
        nodes.begin() + static_cast<std::ptrdiff_t>(n))
      return fail(Code::kBadArgument, "node {} stands twice in the world", nodes[n]);
  if (here.value >= nodes.size())
    return fail(Code::kBadArgument, "the world has {} nodes, and this one is said to be number {}",
                nodes.size(), here.value);
  std::vector<bool> used(nodes.size());
  for (std::size_t rank = 0; rank < node_of.size(); ++rank) {
    if (node_of[rank] >= nodes.size())
      return fail(Code::kBadArgument, "rank {} is placed on node number {}, and there are {}", rank,
                  node_of[rank], nodes.size());
    used[node_of[rank]] = true;
  }
  for (std::size_t n = 0; n < nodes.size(); ++n)
    if (!used[n]) return fail(Code::kBadArgument, "no rank is placed on node {}", nodes[n]);
  return World(table_of(std::move(nodes), {node_of.begin(), node_of.end()}, here));
}

bool World::are_local(std::span<const Rank> ranks) const {
  return std::all_of(ranks.begin(), ranks.end(), [this](Rank rank) { return is_local(rank); });
}

bool World::any_local(std::span<const Rank> ranks) const {
  return std::any_of(ranks.begin(), ranks.end(), [this](Rank rank) { return is_local(rank); });
}

std::string World::text_of(std::span<const Rank> ranks) const {
  std::string text;
  for (std::uint32_t n = 0; n < nodes().size(); ++n) {
    std::vector<std::uint32_t> there;
    for (const Rank rank : ranks)
      if (node_of(rank) == NodeIndex(n)) there.push_back(rank.value);
    if (there.empty()) continue;
    if (text.empty())
      text = there.size() == 1 && ranks.size() == 1 ? "rank " : "ranks ";
    else
      text += ", ";
    text += fmt::format("{} on node {}", rank_list(there), nodes()[n]);
  }
  return text;
}

}  // namespace muster
