#include "scheduler/run/graph.hpp"

#include "api/base/assert.hpp"
#include "scheduler/run/overdue.hpp"

#include <algorithm>
#include <utility>

namespace muster::scheduler {
namespace {

// Who looks at its deadlines this much later than the time before was held up itself.
constexpr Nanos kLate = std::chrono::milliseconds(200);

// What those hear who would have met a rank whose lane has failed so.
CausePtr passed_on(const CausePtr& cause) {
  if (cause->code != Code::kDependency) return cause;
  Cause root = *cause;
  root.code = cause->root;
  return std::make_shared<const Cause>(std::move(root));
}

// What a lane fails by whose start waits for a point that will never be reached. The end of a session is
// nothing that a lane gets over: what waited ends of it too.
Cause dependency(const Cause& cause) {
  Cause behind = cause;
  behind.root = cause.code == Code::kDependency ? cause.root : cause.code;
  behind.code = is_session_end(behind.root) ? behind.root : Code::kDependency;
  return behind;
}

}  // namespace

Graph::Graph(GraphOptions options, std::vector<Group> groups, Actions& actions)
    : options_(options),
      actions_(actions),
      matches_(std::move(groups), options.lanes),
      steps_(options.ranks * options.lanes * options.launch_depth, options.lanes, matches_.groups()) {
  ranks_.reserve(options.ranks);
  for (std::uint32_t i = 0; i < options.ranks; ++i)
    ranks_.push_back({RankLanes(options.lanes, options.lane_depth), nullptr, nullptr});
  touched_.reserve(options.ranks);
  stirred_.reserve(std::size_t{options.ranks} * options.lanes);
}

void Graph::set_group(GroupId group, Group now) {
  steps_.set_group(group, now.ranks.size());
  matches_.set_group(group, std::move(now));
}

// ---- clients -----------------------------------------------------------------------------------

void Graph::attached(Rank rank) {
  RankState& r = ranks_[rank.value];
  if (r.absence != nullptr) --absences_;
  r.left_by = nullptr;
  r.absence = nullptr;
  r.lanes.attached();
  matches_.attached(rank);
}

CausePtr Graph::detached(Rank rank, const std::string& text, Instant now, const CausePtr& heard) {
  RankState& r = ranks_[rank.value];
  if (!r.lanes.present()) return nullptr;
  CausePtr root = r.lanes.first_failure();
  if (root == nullptr) root = heard;
  Cause loss{Code::kPeerLost, static_cast<std::int32_t>(rank.value), text};
  if (root != nullptr) {
    loss.culprit = root->culprit;
    loss.text = root->text;
  }
  const CausePtr cause = new_fault(std::move(loss));
  if (root != nullptr) {
    r.left_by = cause;
    if (r.absence != nullptr) r.absence = cause;
  }
  r.lanes.detached();
  for (std::uint32_t lane = 0; lane < options_.lanes; ++lane) stop_lane(rank, lane, cause);
  for (std::uint32_t g = 0; g < groups().size(); ++g) {
    const std::vector<Rank>& members = groups()[g].ranks;
    if (std::find(members.begin(), members.end(), rank) == members.end()) continue;
    fail(matches_.end_group(GroupId(g), cause, Epochs::Why::kLoss), cause);
  }
  settle(now);
  const auto here = [](const RankState& other) { return other.lanes.present(); };
  if (std::none_of(ranks_.begin(), ranks_.end(), here)) forget_absences();
  return cause;
}

void Graph::absent(Rank rank, const std::string& text, Instant now) {
  RankState& r = ranks_[rank.value];
  if (r.absence != nullptr) return;
  Cause cause{Code::kPeerLost, static_cast<std::int32_t>(rank.value), text};
  if (r.left_by != nullptr) cause = *r.left_by;
  r.absence = new_fault(std::move(cause));
  ++absences_;
  if (r.lanes.present()) return;
  fail(matches_.waiting_for(rank), r.absence);
  settle(now);
}

// What made ranks leave was of the run that is over: who does not come to the next has another reason.
void Graph::expect_all() {
  for (RankState& r : ranks_) r.left_by = nullptr;
  forget_absences();
}

void Graph::forget_absences() {
  for (RankState& r : ranks_) r.absence = nullptr;
  absences_ = 0;
}

CausePtr Graph::gone(Rank rank) const {
  const RankState& r = ranks_[rank.value];
  return r.lanes.present() ? nullptr : r.absence;
}

void Graph::heard(Rank rank, std::uint64_t fault) {
  if (ranks_[rank.value].lanes.present()) matches_.heard(rank, fault);
}

CausePtr Graph::absence_in(const CollectiveWork& work) const {
  CausePtr first;
  if (absences_ == 0) return first;
  const std::vector<Rank>& members = groups()[work.group.value].ranks;
  for (std::size_t i = 0; i < members.size(); ++i) {
    const auto index = static_cast<std::int32_t>(i);
    const bool needed =
        !work.point_to_point() || index == work.collective.root || index == work.collective.receiver;
    const CausePtr absence = needed ? gone(members[i]) : nullptr;
    if (absence != nullptr && (first == nullptr || absence->fault < first->fault)) first = absence;
  }
  return first;
}

// ---- events ------------------------------------------------------------------------------------

Code Graph::submit(const Request& request, Instant now) {
  RankLanes& rank = ranks_[request.rank.value].lanes;
  MUSTER_ASSERT(rank.present() && request.lane < options_.lanes);
  LaneQueue& lane = rank.lane(request.lane);
  if (request.value != lane.next_value()) return Code::kBadArgument;
  for (const std::uint64_t wait : request.waits) {
    if (wait == 0) continue;
    const std::uint32_t timeline = shm::point_timeline(wait);
    const bool known =
        timeline < options_.lanes || (timeline >= shm::kClientTimelineFirst && timeline < shm::kTimelinesMax);
    if (!known) return Code::kBadArgument;
  }
  if (lane.full()) return Code::kBusy;
  lane.skip();
  LaneQueue::Start start{request, {}, false};
  if (const CollectiveWork* work = request.plan->collective())
    start.stamp = matches_.stamp(place_of(*work, request.lane));
  actions_.submitted(request);
  if (lane.stopped()) {  // covered by the failure that is published already
    drop(request.rank, request.lane, start);
    actions_.retired(request.rank, request.lane, request.value, *request.plan, false);
  } else {
    lane.push(std::move(start), now);
    stirred_.push_back(request.rank);
  }
  settle(now);
  return Code::kOk;
}

Code Graph::signal(Rank rank, std::uint32_t timeline, std::uint64_t value, Instant now) {
  const Code code = ranks_[rank.value].lanes.signal(timeline, value, now);
  if (code != Code::kOk) return code;
  stirred_.push_back(rank);
  settle(now);
  return Code::kOk;
}

void Graph::reset_lane(Rank rank, std::uint32_t lane_index, Instant now) {
  LaneQueue& lane = ranks_[rank.value].lanes.lane(lane_index);
  if (!lane.stopped()) return;
  const std::uint64_t fault = lane.cause()->fault;
  for (const Place& place : lane.noted()) matches_.move_on(place, fault);
  matches_.heard(rank, fault);
  actions_.resumed(rank, lane_index, lane.resume());
  stirred_.push_back(rank);
  settle(now);
}

void Graph::finished(std::uint32_t step_index, Instant now, const Status* failed) {
  const StepTable::InFlight& flight = steps_.at(step_index);
  const CausePtr cause = failed != nullptr ? new_fault(cause_of(flight.step, groups(), *failed)) : nullptr;
  touched_.clear();
  for (std::size_t i = 0; i < flight.step.parts.size(); ++i) {
    const Step::Part& part = flight.step.parts[i];
    RankLanes& rank = ranks_[part.rank.value].lanes;
    LaneQueue& lane = rank.lane(part.lane);
    rank.finished(part.lane);
    lane.moved_at(now);
    // Of another client than the present one: that one has the place on the lane now.
    const bool of_former = !rank.present() || flight.generations[i] != rank.generation();
    const bool well = cause == nullptr && (of_former || lane.failure_at(part.value) == nullptr);
    actions_.retired(part.rank, part.lane, part.value, *part.plan, well);
    if (rank.present()) touched_.push_back(part.rank);
    if (of_former) continue;
    lane.finish(part.value, well);
    if (well) actions_.reached(part.rank, part.lane, part.value);
    if (cause != nullptr) fail_launched(part, cause);
  }
  steps_.give_back(step_index);
  stirred_.insert(stirred_.end(), touched_.begin(), touched_.end());
  settle(now);
}

CausePtr Graph::abort(GroupId group, Cause cause, Instant now) {
  const CausePtr fault = new_fault(std::move(cause));
  fail(matches_.end_group(group, fault, Epochs::Why::kOther), fault);
  settle(now);
  return fault;
}

void Graph::give_up(Rank rank, std::uint32_t lane, Cause cause, Instant now) {
  if (!ranks_[rank.value].lanes.lane(lane).has_next()) return;
  stop_lane(rank, lane, new_fault(std::move(cause)));
  settle(now);
}

// Starts that wait for another lane of their rank come second: they fall with the head of that one, by its
// cause, if both are overdue.
void Graph::tick(Instant now) {
  const Instant before = std::exchange(last_tick_, now).value_or(now);
  if (now - before > kLate)
    for (RankState& r : ranks_) r.lanes.forgive(before, now - before);
  for (const bool roots : {true, false})
    for (std::uint32_t i = 0; i < ranks(); ++i)
      for (std::uint32_t lane = 0; lane < options_.lanes; ++lane) {
        const RankLanes& rank = ranks_[i].lanes;
        if (const auto deadline = rank.deadline(lane); !deadline || *deadline > now) continue;
        const LaneQueue::Start& next = rank.lane(lane).next();
        if (roots && !next.arrived && rank.obstacle(lane, next).lane) continue;
        Cause cause = overdue(matches_, rank, Rank(i), lane);
        actions_.overdue(Rank(i), lane, cause);
        stop_lane(Rank(i), lane, new_fault(std::move(cause)));
        settle(now);
      }
}

std::optional<Instant> Graph::next_deadline() const {
  std::optional<Instant> next;
  for (const RankState& r : ranks_)
    for (std::uint32_t lane = 0; lane < options_.lanes; ++lane)
      if (const auto deadline = r.lanes.deadline(lane); deadline && (!next || *deadline < *next))
        next = deadline;
  return next;
}

// ---- progress ----------------------------------------------------------------------------------

// Whatever an event has set going: lanes that fail, and ranks of which something may go on. Each place ends
// once of a fault, so this comes to an end.
void Graph::settle(Instant now) {
  for (std::size_t next = 0; next < stirred_.size() || !failing_.empty();) {
    if (failing_.empty()) {
      const Rank rank = stirred_[next++];
      if (ranks_[rank.value].lanes.present()) pump(rank, now);
      continue;
    }
    const Failing failing = std::move(failing_.back());
    failing_.pop_back();
    const LaneQueue& lane = ranks_[failing.rank.value].lanes.lane(failing.lane);
    // It may have failed by something else meanwhile.
    if (lane.has_next() && lane.next().request.value == failing.value)
      stop_lane(failing.rank, failing.lane, failing.cause);
  }
  stirred_.clear();
}

void Graph::pump(Rank rank, Instant now) {
  // A lane that moves can release another one, so turn until a whole round moves nothing.
  for (bool moved = true; moved;) {
    moved = false;
    for (std::uint32_t lane = 0; lane < options_.lanes; ++lane) moved = pump_lane(rank, lane, now) || moved;
  }
  ranks_[rank.value].lanes.note_exposure(now);
}

bool Graph::pump_lane(Rank rank, std::uint32_t lane_index, Instant now) {
  RankLanes& r = ranks_[rank.value].lanes;
  LaneQueue& lane = r.lane(lane_index);
  bool moved = false;
  while (lane.has_next() && r.running(lane_index) < options_.launch_depth) {
    LaneQueue::Start& start = lane.next();
    if (lane.collective_launched() || start.arrived) break;
    const bool collective = start.request.plan->collective() != nullptr;
    // Work of former clients may still run on the lane's stream, and has its place there.
    if (collective && r.running(lane_index) > 0) break;
    const Cause* failed = nullptr;
    const RankLanes::Ready ready = r.readiness(lane_index, start, &failed);
    if (ready == RankLanes::Ready::kNo) break;
    if (ready == RankLanes::Ready::kFailed) {
      stop_lane(rank, lane_index, std::make_shared<const Cause>(dependency(*failed)));
      return true;
    }
    if (collective) return arrive(rank, lane_index, now) || moved;
    const MatchQueue::Arrival alone{rank, lane_index, start.request.value, start.request.plan, {}, now};
    launch(std::span(&alone, 1), now);
    moved = true;
  }
  return moved;
}

// True if the lane has changed: the collective was launched, or the lane has stopped.
bool Graph::arrive(Rank rank, std::uint32_t lane_index, Instant now) {
  LaneQueue& lane = ranks_[rank.value].lanes.lane(lane_index);
  LaneQueue::Start& start = lane.next();
  const CollectiveWork& work = *start.request.plan->collective();
  if (const CausePtr absence = absence_in(work)) {
    stop_lane(rank, lane_index, absence);
    return true;
  }
  const MatchQueue::Match match =
      matches_.arrive({rank, lane_index, start.request.value, start.request.plan, start.stamp, now});
  switch (match.kind) {
    case MatchQueue::Match::Kind::kWait:
      start.arrived = true;
      lane.moved_at(now);
      return false;
    case MatchQueue::Match::Kind::kGo:
      launch(match.members, now);
      return true;
    case MatchQueue::Match::Kind::kEnded:
      stop_lane(rank, lane_index, match.cause);
      return true;
    case MatchQueue::Match::Kind::kDisagree: {
      const CausePtr cause = new_fault({Code::kMismatch, -1, match.differ});
      fail(match.members, cause);
      fail(matches_.end(place_of(work, lane_index), cause), cause);
      return true;
    }
  }
  return false;
}

void Graph::launch(std::span<const MatchQueue::Arrival> members, Instant now) {
  std::uint32_t index = 0;
  StepTable::InFlight& flight =
      steps_.take(members.size(), members.front().lane, *members.front().plan, &index);
  flight.since = now;
  for (const MatchQueue::Arrival& member : members) {
    RankLanes& rank = ranks_[member.rank.value].lanes;
    MUSTER_ASSERT(rank.lane(member.lane).next().request.value == member.value);
    rank.lane(member.lane).launch_next();
    rank.launched(member.lane);
    flight.step.parts.push_back({member.rank, member.lane, member.value, member.plan, member.at});
    flight.generations.push_back(rank.generation());
  }
  actions_.launch(index, flight.step);
}

// ---- failure -----------------------------------------------------------------------------------

CausePtr Graph::new_fault(Cause cause) {
  cause.fault = ++faults_;
  return std::make_shared<const Cause>(std::move(cause));
}

void Graph::fail(std::span<const MatchQueue::Arrival> waited, const CausePtr& cause) {
  for (const MatchQueue::Arrival& each : waited)
    failing_.push_back({each.rank, each.lane, each.value, cause});
}

void Graph::stop_lane(Rank rank, std::uint32_t lane_index, const CausePtr& cause) {
  RankLanes& r = ranks_[rank.value].lanes;
  LaneQueue& lane = r.lane(lane_index);
  if (lane.stopped()) return;
  const std::uint64_t from = lane.stop(cause);
  drop_waiting(rank, lane_index);
  if (!r.present()) return;
  actions_.stopped(rank, lane_index, from, *cause);
  stirred_.push_back(rank);
}

// A launched start has failed. What was launched behind it may still run, but does not count.
void Graph::fail_launched(const Step::Part& part, const CausePtr& cause) {
  LaneQueue& lane = ranks_[part.rank.value].lanes.lane(part.lane);
  if (const CollectiveWork* work = part.plan->collective()) {
    const Place place = place_of(*work, part.lane);
    lane.note(place);
    fail(matches_.end(place, cause), cause);
  }
  const std::optional<std::uint64_t> from = lane.stop_at(part.value, cause);
  if (!from) return stop_lane(part.rank, part.lane, cause);  // reset since: what comes next hears of it
  drop_waiting(part.rank, part.lane);
  actions_.stopped(part.rank, part.lane, *from, *lane.cause());
}

void Graph::drop_waiting(Rank rank, std::uint32_t lane_index) {
  LaneQueue& lane = ranks_[rank.value].lanes.lane(lane_index);
  while (lane.has_next()) {
    const LaneQueue::Start start = lane.take_newest();
    drop(rank, lane_index, start);
    actions_.retired(rank, lane_index, start.request.value, *start.request.plan, false);
  }
}

// A start of a stopped lane will not be launched.
void Graph::drop(Rank rank, std::uint32_t lane_index, const LaneQueue::Start& start) {
  const CollectiveWork* work = start.request.plan->collective();
  if (work == nullptr) return;
  if (start.arrived)
    matches_.withdraw({rank, lane_index, start.request.value, start.request.plan, start.stamp, {}});
  RankLanes& r = ranks_[rank.value].lanes;
  if (!r.present()) return;  // all its places end
  const Place place = place_of(*work, lane_index);
  r.lane(lane_index).note(place);
  if (absence_in(*work) != nullptr) return matches_.give_back(place, start.stamp);
  const CausePtr cause = passed_on(r.lane(lane_index).cause());
  fail(matches_.drop(place, start.stamp, cause), cause);
}

}  // namespace muster::scheduler
