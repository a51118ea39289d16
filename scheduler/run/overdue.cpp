#include "scheduler/run/overdue.hpp"

#include "api/base/words.hpp"

#include <utility>

#include <fmt/format.h>

namespace muster::scheduler {
namespace {

std::string rank_list(const std::vector<Rank>& ranks) {
  std::vector<std::uint32_t> numbers;
  for (const Rank rank : ranks) numbers.push_back(rank.value);
  return muster::rank_list(numbers);
}

// The cause of a collective whose other members have not all arrived.
Cause missed(const MatchQueue& matches, const LaneTable& names, const LaneQueue::Start& start) {
  const CollectiveWork& work = *start.request.plan->collective();
  const Group& group = matches.groups()[work.group.value];
  std::vector<Rank> missing;
  if (work.point_to_point()) {
    const std::int32_t peer =
        work.collective.op == MUSTER_SEND ? work.collective.receiver : work.collective.root;
    missing.push_back(group.ranks[static_cast<std::size_t>(peer)]);
  } else {
    missing = matches.missing(work.group, start.request.lane_id);
  }
  return {
      Code::kTimeout, missing.empty() ? -1 : static_cast<std::int32_t>(missing.front().value),
      fmt::format("group {}: {} on lane {} {}; missing rank{} {}", group.name, start.request.plan->label(),
                  names.label(start.request.lane_id), passed_deadline(start.request.timeout),
                  missing.size() == 1 ? "" : "s", rank_list(missing))};
}

}  // namespace

Cause overdue(const MatchQueue& matches, const RankLanes& lanes, const LaneTable& names, Rank rank,
              std::uint32_t lane) {
  const LaneQueue::Start* blocked = &lanes.lane(lane).next();
  if (blocked->arrived) return missed(matches, names, *blocked);
  std::string text =
      fmt::format("rank {}: {} on lane {} {} while waiting for ", rank.value, blocked->request.plan->label(),
                  names.label(lanes.id(lane)), passed_deadline(blocked->request.timeout));
  for (std::uint32_t steps = 0, at = lane; steps < lanes.lanes(); ++steps) {
    const RankLanes::Obstacle obstacle = lanes.obstacle(at, *blocked, names);
    text += obstacle.text;
    if (!obstacle.lane || lanes.lane(*obstacle.lane).oldest() == nullptr) break;
    at = *obstacle.lane;
    blocked = lanes.lane(at).oldest();
    if (blocked->arrived) {
      Cause root = missed(matches, names, *blocked);
      root.text = text + ": " + root.text;
      return root;
    }
    if (lanes.lane(at).any_launched()) break;
    text += fmt::format(", where {} waits for ", blocked->request.plan->label());
  }
  return {Code::kTimeout, static_cast<std::int32_t>(rank.value), text};
}

// The first rank that is known to be missing is the culprit.
Cause overdue(const Step& step, Nanos deadline, std::span<const Group> groups, const LaneTable& names,
              const World& world, std::span<const AwaitedRanks> awaited) {
  const Step::Part& first = step.parts.front();
  std::string why;
  std::int32_t culprit = -1;
  for (const AwaitedRanks& each : awaited) {
    const bool one = each.ranks.size() == 1;
    why += fmt::format("{}{}rank{} {} on node {} {} not come to it", why.empty() ? "" : "; ",
                       each.all_missing ? "" : "one at least of ", one ? "" : "s", rank_list(each.ranks),
                       world.name_of(each.node), one || !each.all_missing ? "has" : "have");
    if (each.all_missing && culprit < 0) culprit = static_cast<std::int32_t>(each.ranks.front().value);
  }
  if (why.empty())
    why = "all its members had come to it, and what it does between nodes or devices has not ended";
  return {Code::kTimeout, culprit,
          fmt::format("group {}: {} on lane {} {}; {}", groups[first.plan->collective()->group.value].name,
                      first.plan->label(), names.label(first.lane_id), passed_deadline(deadline), why)};
}

}  // namespace muster::scheduler
