// How long what is next on a lane may wait, and who is to blame if it waits longer.
#include "scheduler/blame/blame.hpp"
#include "scheduler/run/graph.hpp"

#include <algorithm>
#include <vector>

#include <fmt/format.h>

namespace muster::scheduler {
namespace {

// Who looks at its deadlines this much later than the time before was held up itself.
constexpr Nanos kLate = std::chrono::milliseconds(200);

std::string rank_list(const std::vector<Rank>& ranks) {
  std::vector<std::uint32_t> numbers;
  for (const Rank rank : ranks) numbers.push_back(rank.value);
  return blame::rank_list(numbers);
}

}  // namespace

// Starts that wait for another lane of their rank come second: they fall with the head of that one, by its
// cause, if both are overdue.
void Graph::tick(Instant now) {
  forgive_lateness(now);
  for (const bool roots : {true, false})
    for (std::uint32_t rank = 0; rank < ranks_.size(); ++rank)
      for (std::uint32_t lane = 0; lane < MUSTER_LANE_COUNT; ++lane) {
        const RankState& r = ranks_[rank];
        if (const auto deadline = deadline_of(r, lane); !deadline || *deadline > now) continue;
        const Start& head = r.lanes[lane].queue[r.lanes[lane].launched];
        if (roots && !head.arrived && waiting_for(r, lane, head).lane) continue;
        end_overdue(Rank(rank), lane, now);
      }
}

// While the engine was not running, perhaps nobody was: the time is nobody's fault.
void Graph::forgive_lateness(Instant now) {
  const Instant before = last_tick_.value_or(now);
  last_tick_ = now;
  const Nanos lateness = now - before;
  if (lateness <= kLate) return;
  const auto extend = [&](Instant& since) {
    if (since <= before) since += lateness;
  };
  for (RankState& r : ranks_) {
    for (Lane& lane : r.lanes) extend(lane.moved);
    for (Instant& signalled : r.signalled) extend(signalled);
  }
}

void Graph::end_overdue(Rank rank, std::uint32_t lane, Instant now) {
  const Lane& l = state(rank).lanes[lane];
  const Start start = l.queue[l.launched];
  Verdict verdict = overdue(rank, lane, start);
  actions_.overdue(rank, lane, verdict);
  verdict.event = ++failures_;
  end_next(rank, lane, verdict, now);
}

std::optional<Instant> Graph::next_deadline() const {
  std::optional<Instant> next;
  for (const RankState& r : ranks_)
    for (std::uint32_t lane = 0; lane < MUSTER_LANE_COUNT; ++lane)
      if (const auto deadline = deadline_of(r, lane); deadline && (!next || *deadline < *next))
        next = deadline;
  return next;
}

std::optional<Instant> Graph::deadline_of(const RankState& r, std::uint32_t lane) const {
  const Lane& l = r.lanes[lane];
  if (!r.present || l.launched == l.queue.size()) return std::nullopt;
  const std::optional<Instant> since = still_since(r, lane, 0);
  if (!since) return std::nullopt;
  return later(*since, l.queue[l.launched].request.timeout);
}

// The latest moment at which something moved that the lane's next start waits for; nothing if it moves now:
// the device is at work before it. `seen` has a bit for each lane that has been asked.
std::optional<Instant> Graph::still_since(const RankState& r, std::uint32_t lane, std::uint32_t seen) const {
  const Lane& l = r.lanes[lane];
  if (r.running[lane] > 0) return std::nullopt;
  Instant since = l.moved;
  if (l.launched == l.queue.size() || l.queue[l.launched].arrived) return since;
  seen |= 1U << lane;
  for (const std::uint64_t wait : l.queue[l.launched].request.waits) {
    if (wait == 0) continue;
    const std::uint32_t timeline = shm::point_timeline(wait);
    const std::uint64_t value = shm::point_value(wait);
    if (timeline >= shm::kClientTimelineFirst) {
      const std::size_t index = timeline - shm::kClientTimelineFirst;
      if (r.timelines[index] < value) since = std::max(since, r.signalled[index]);
    } else if ((seen >> timeline & 1U) == 0 && r.lanes[timeline].reached < value) {
      const std::optional<Instant> there = still_since(r, timeline, seen);
      if (!there) return std::nullopt;
      since = std::max(since, *there);
    }
  }
  return since;
}

// Who is to blame: the members that have not arrived, or the point that was never reached. Where the start
// waits for another lane of its rank, the head of that lane is asked.
Verdict Graph::overdue(Rank rank, std::uint32_t lane, const Start& start) const {
  const CollectiveWork* work = start.request.plan->collective();
  if (work != nullptr && start.arrived) return missed(*work, lane, start);
  std::string text = fmt::format("rank {}: {} on lane {} passed its deadline while waiting for ", rank.value,
                                 start.request.plan->label(), lane_name(lane));
  const RankState& r = state(rank);
  const Start* blocked = &start;
  for (std::uint32_t steps = 0, at = lane; steps < MUSTER_LANE_COUNT; ++steps) {
    const Obstacle obstacle = waiting_for(r, at, *blocked);
    text += obstacle.text;
    if (!obstacle.lane || r.lanes[*obstacle.lane].queue.empty()) break;
    at = *obstacle.lane;
    blocked = &r.lanes[at].queue.front();
    const CollectiveWork* head = blocked->request.plan->collective();
    if (head != nullptr && blocked->arrived) {
      Verdict root = missed(*head, at, *blocked);
      root.text = text + ": " + root.text;
      return root;
    }
    if (blocked->launched) break;
    text += fmt::format(", where {} waits for ", blocked->request.plan->label());
  }
  return {Code::kTimeout, static_cast<std::int32_t>(rank.value), text, 0};
}

// A collective that its other members let down.
Verdict Graph::missed(const CollectiveWork& work, std::uint32_t lane, const Start& start) const {
  const Group& group = groups()[work.group.value];
  std::vector<Rank> missing;
  if (work.point_to_point()) {
    const std::int32_t peer =
        work.collective.op == MUSTER_SEND ? work.collective.receiver : work.collective.root;
    missing.push_back(group.ranks[static_cast<std::size_t>(peer)]);
  } else {
    missing = sequencer_.missing(work.group, lane);
  }
  return {Code::kTimeout, missing.empty() ? -1 : static_cast<std::int32_t>(missing.front().value),
          fmt::format("group {}: {} on lane {} passed its deadline; missing rank{} {}", group.name,
                      start.request.plan->label(), lane_name(lane), missing.size() == 1 ? "" : "s",
                      rank_list(missing)),
          0};
}

Graph::Obstacle Graph::waiting_for(const RankState& r, std::uint32_t lane, const Start& start) const {
  for (const std::uint64_t wait : start.request.waits) {
    if (wait == 0) continue;
    const std::uint32_t timeline = shm::point_timeline(wait);
    const std::uint64_t value = shm::point_value(wait);
    if (timeline >= shm::kClientTimelineFirst) {
      const std::uint64_t at = r.timelines[timeline - shm::kClientTimelineFirst];
      if (at < value)
        return {fmt::format("client timeline {} to reach {} (it is at {})", timeline, value, at), {}};
    } else if (timeline != lane && r.lanes[timeline].reached < value) {
      return {fmt::format("lane {} to reach {} (it is at {})", lane_name(timeline), value,
                          r.lanes[timeline].reached),
              timeline};
    }
  }
  return {"work before it on its lane", {}};
}

}  // namespace muster::scheduler
