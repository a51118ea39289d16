#include "daemon/engine/nodes/missing_members.hpp"

#include "daemon/engine/nodes/node_messages.hpp"
#include "daemon/engine/session/group_span.hpp"

#include <algorithm>
#include <cstring>

namespace muster::engine {
namespace {

constexpr std::size_t bit_bytes(std::size_t members) {
  return (members + 7) / 8;
}

}  // namespace

std::vector<std::byte> MissingMembers::message_of(const transport::PlaceKey& place, const Missing& missing,
                                                  std::span<const Rank> group) {
  MissingMessage head;
  head.group = place.group;
  head.number = missing.number;
  head.members = static_cast<std::uint32_t>(group.size());
  head.lane = place.lane;
  head.epoch = missing.epoch;
  std::vector<std::byte> message(sizeof head + bit_bytes(group.size()));
  std::memcpy(message.data(), &head, sizeof head);
  for (std::size_t i = 0; i < group.size(); ++i)
    if (std::find(missing.ranks.begin(), missing.ranks.end(), group[i]) != missing.ranks.end())
      message[sizeof head + i / 8] |= std::byte{1} << (i % 8);
  return message;
}

void MissingMembers::tell(Instant now) {
  std::map<transport::PlaceKey, Missing> told;
  for (const scheduler::GroupPlaces::Pending& pending : graph_.matches().pending()) {
    const scheduler::Group& group = graph_.groups()[pending.group.value];
    const scheduler::Arrival& any = pending.arrived.front();
    if (!group.spans() || any.plan->collective()->point_to_point() || pending.missing.empty()) continue;
    const bool long_ago = std::any_of(pending.arrived.begin(), pending.arrived.end(),
                                      [&](const auto& each) { return now - each.at >= kToldAfter; });
    if (!long_ago) continue;
    const transport::PlaceKey place = scheduler::key_of({pending.group, pending.lane, -1, -1, 0, false, 0},
                                                        graph_.groups(), graph_.lane_names());
    Missing missing{any.stamp.epoch, any.stamp.number, pending.missing};
    const auto before = told_.find(place);
    if (before == told_.end() || before->second != missing) {
      const auto message = message_of(place, missing, group.ranks);
      for (const NodeIndex node : span_of(group, world_).nodes)
        if (node != world_.here() && message.size() <= transport::JobLinks::kMessageMax)
          links_.tell(node, message);
    }
    told.emplace(place, std::move(missing));
  }
  told_ = std::move(told);
}

void MissingMembers::hear(NodeIndex from, std::span<const std::byte> message) {
  const auto head = read_head<MissingMessage>(message);
  if (!head) return;
  const auto groups = graph_.groups();
  const auto group = std::find_if(groups.begin(), groups.end(), [&](const scheduler::Group& each) {
    return each.spans() && each.key == head->group;
  });
  if (group == groups.end() || head->members != group->ranks.size()) return;
  if (message.size() != sizeof *head + bit_bytes(head->members)) return;
  Missing missing{head->epoch, head->number, {}};
  for (std::size_t i = 0; i < group->ranks.size(); ++i) {
    const bool is_missing = (message[sizeof *head + i / 8] >> (i % 8) & std::byte{1}) != std::byte{0};
    if (is_missing && world_.node_of(group->ranks[i]) == from) missing.ranks.push_back(group->ranks[i]);
  }
  if (heard_.size() >= kHeardMax) heard_.clear();
  heard_.insert_or_assign({from, {head->group, head->lane, -1, -1}}, std::move(missing));
}

std::vector<scheduler::Step::Awaited> MissingMembers::awaited(const scheduler::Step& step,
                                                              std::span<const std::uint32_t> members) const {
  const scheduler::CollectiveWork& work = *step.parts.front().plan->collective();
  const scheduler::Group& group = graph_.groups()[work.group.value];
  std::vector<scheduler::Step::Awaited> all;
  for (const std::uint32_t member : members) {
    const Rank rank = group.ranks[member];
    const NodeIndex node = world_.node_of(rank);
    const auto its =
        std::find_if(all.begin(), all.end(), [&](const auto& each) { return each.node == node; });
    its == all.end() ? all.push_back({node, {rank}, false}) : its->ranks.push_back(rank);
  }
  for (scheduler::Step::Awaited& each : all) {
    each.all_missing = each.ranks.size() == 1;
    const auto heard = heard_.find({each.node, step.key.place});
    if (each.all_missing || heard == heard_.end() || heard->second.ranks.empty()) continue;
    const Missing& missing = heard->second;
    if (missing.epoch != step.key.epoch || missing.number != step.key.number) continue;
    each.ranks = missing.ranks;
    each.all_missing = true;
  }
  return all;
}

}  // namespace muster::engine
