#include "scheduler/run/overdue.hpp"

#include "api/base/words.hpp"
#include "scheduler/run/heads.hpp"

#include <fmt/format.h>

namespace muster::scheduler {
namespace {

std::string rank_list(const std::vector<Rank>& ranks) {
  std::vector<std::uint32_t> numbers;
  for (const Rank rank : ranks) numbers.push_back(rank.value);
  return muster::rank_list(numbers);
}

// "all_reduce", "recv of tag 9".
std::string named(const Plan& plan) {
  const CollectiveWork* work = plan.collective();
  const bool message = work != nullptr && work->point_to_point();
  return message ? fmt::format("{} of tag {}", plan.label(), work->collective.tag) : plan.label();
}

// "missing ranks 2 3; rank 1 has its all_reduce at position 2 of lane halo": a part that stands behind others
// in its lane is there, and comes too late.
std::string absent(const RankTable<RankLanes>& ranks, const LaneTable& names, const LaneQueue::Start& start,
                   const std::vector<Rank>& missing) {
  const CollectiveWork& work = *start.request.plan->collective();
  std::vector<Rank> nowhere;
  std::string queued;
  for (const Rank rank : missing) {
    const RankLanes* lanes = ranks.world().is_local(rank) ? &ranks[rank] : nullptr;
    const auto lane = lanes != nullptr ? lanes->find(start.request.lane_id) : std::nullopt;
    const auto found = lane ? submitted(*lanes, *lane, work.group) : std::nullopt;
    if (found && found->position > 1)
      queued += fmt::format("{}rank {} has its {} at {}", queued.empty() ? "" : "; ", rank.value,
                            lanes->lane(*lane).waiting(found->position - 1).request.plan->label(),
                            found->text(*lanes, names));
    else
      nowhere.push_back(rank);
  }
  if (nowhere.empty() && !queued.empty()) return queued;
  return fmt::format("missing rank{} {}{}{}", nowhere.size() == 1 ? "" : "s", rank_list(nowhere),
                     queued.empty() ? "" : "; ", queued);
}

// The cause of a collective whose other members have not all arrived.
Cause missed(const MatchQueue& matches, const RankTable<RankLanes>& ranks, const LaneTable& names,
             const LaneQueue::Start& start) {
  const CollectiveWork& work = *start.request.plan->collective();
  const Group& group = matches.groups()[work.group.value];
  std::vector<Rank> missing;
  std::string queued;  // where the other end of a message stands
  if (work.point_to_point()) {
    const std::int32_t peer =
        work.collective.op == MUSTER_SEND ? work.collective.receiver : work.collective.root;
    missing.push_back(group.ranks[static_cast<std::size_t>(peer)]);
    const RankLanes* lanes = ranks.world().is_local(missing.front()) ? &ranks[missing.front()] : nullptr;
    if (const auto found = lanes != nullptr ? other_end(*lanes, work) : std::nullopt)
      queued = fmt::format("rank {} has its {} at {}", missing.front().value,
                           work.collective.op == MUSTER_SEND ? "recv" : "send", found->text(*lanes, names));
  } else {
    missing = matches[work.group].missing(place_of(work, start.request.lane_id));
  }
  if (queued.empty() && work.point_to_point())
    queued = fmt::format("missing rank {}", missing.front().value);
  else if (queued.empty())
    queued = absent(ranks, names, start, missing);
  return {Code::kTimeout, missing.empty() ? -1 : static_cast<std::int32_t>(missing.front().value),
          fmt::format("group {}: {} on lane {} {}; {}", group.name, named(*start.request.plan),
                      names.label(start.request.lane_id), passed_deadline(start.request.timeout), queued)};
}

}  // namespace

Cause overdue(const MatchQueue& matches, const RankTable<RankLanes>& ranks, const LaneTable& names, Rank rank,
              std::uint32_t lane) {
  const RankLanes& lanes = ranks[rank];
  const LaneQueue::Start* blocked = &lanes.lane(lane).next();
  if (blocked->arrived) return missed(matches, ranks, names, *blocked);
  std::string text =
      fmt::format("rank {}: {} on lane {} {} while waiting for ", rank.value, named(*blocked->request.plan),
                  names.label(lanes.id(lane)), passed_deadline(blocked->request.timeout));
  for (std::uint32_t steps = 0, at = lane; steps < lanes.lanes(); ++steps) {
    const RankLanes::Obstacle obstacle = lanes.obstacle(at, *blocked, names);
    text += obstacle.text;
    if (!obstacle.lane || lanes.lane(*obstacle.lane).oldest() == nullptr) break;
    at = *obstacle.lane;
    blocked = lanes.lane(at).oldest();
    if (blocked->arrived) {
      Cause root = missed(matches, ranks, names, *blocked);
      root.text = text + ": " + root.text;
      return root;
    }
    if (lanes.lane(at).any_launched()) break;
    text += fmt::format(", where {} waits for ", named(*blocked->request.plan));
  }
  return {Code::kTimeout, static_cast<std::int32_t>(rank.value), text};
}

// The first rank that is known to be missing is the culprit.
Cause overdue(const Step& step, Nanos deadline, std::span<const Group> groups, const LaneTable& names,
              const World& world, std::span<const Step::Awaited> awaited) {
  const Step::Part& first = step.parts.front();
  std::string why;
  std::int32_t culprit = -1;
  for (const Step::Awaited& each : awaited) {
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
                      named(*first.plan), names.label(first.lane_id), passed_deadline(deadline), why)};
}

}  // namespace muster::scheduler
