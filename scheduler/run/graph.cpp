#include "scheduler/run/graph.hpp"

#include "api/base/assert.hpp"
#include "scheduler/run/overdue.hpp"

#include <array>
#include <bit>
#include <utility>

#include <fmt/format.h>

namespace muster::scheduler {
namespace {

// If two calls of tick() are this far apart, the engine was held up itself.
constexpr Nanos kLate = std::chrono::milliseconds(200);

// The cause that a rank's peers get when its lane has failed: the code at the root replaces DEPENDENCY.
CausePtr passed_on(const CausePtr& cause) {
  if (cause->code != Code::kDependency) return cause;
  Cause root = *cause;
  root.code = cause->root;
  return std::make_shared<const Cause>(std::move(root));
}

// The cause of a start that waits for a point that failed by `cause`. No reset mends the end of a session, so
// its code is passed on unchanged.
CausePtr depending_on(const Cause& cause) {
  Cause behind = cause;
  behind.root = cause.code == Code::kDependency ? cause.root : cause.code;
  behind.code = is_session_end(behind.root) ? behind.root : Code::kDependency;
  return std::make_shared<const Cause>(std::move(behind));
}

// Finds a lane whose next start has arrived, and waits for a launched step that has failed since.
std::optional<std::pair<std::uint32_t, const Cause*>> arrived_behind_failure(const RankLanes& rank) {
  for (std::uint32_t lane = 0; lane < rank.lanes(); ++lane) {
    const LaneQueue& queue = rank.lane(lane);
    const Cause* failed = nullptr;
    if (queue.has_next() && queue.next().arrived &&
        rank.readiness(lane, queue.next(), &failed) == RankLanes::Ready::kFailed)
      return std::pair(lane, failed);
  }
  return std::nullopt;
}

// The cause with the oldest fault among the stopped lanes; nullptr: none is stopped.
CausePtr first_failure(const RankLanes& rank) {
  CausePtr first;
  for (std::uint32_t lane = 0; lane < rank.lanes(); ++lane) {
    const LaneQueue::Failures& failures = rank.lane(lane).failures();
    if (failures.stopped() && (first == nullptr || failures.cause()->fault < first->fault))
      first = failures.cause();
  }
  return first;
}

RankTable<RankLanes> first_lanes(const Graph::Options& options) {
  return {options.world, [&](Rank) { return RankLanes(options.lanes, options.lane_depth); }};
}

// Why the collective cannot complete: a rank that it needs will not come. nullptr: all may come.
CausePtr absence_in(const CollectiveWork& work, std::span<const Rank> members, const Absences& absences) {
  if (!work.point_to_point()) return absences.first_of(members);
  const std::array<Rank, 2> both{members[static_cast<std::size_t>(work.collective.root)],
                                 members[static_cast<std::size_t>(work.collective.receiver)]};
  return absences.first_of(both);
}

// The member of a step is informed of a failure while the step may still use its memory.
void give_up(RankLanes& of, Rank rank, std::uint32_t lane, StepTable::Member& member,
             Graph::Actions& actions) {
  RankLanes::Load& load = of.load(lane);
  member.given_up = true;
  ++load.given_up;
  if (of.present() && member.generation == of.generation())
    actions.quarantined(rank, lane, ++load.quarantined);
}

}  // namespace

Graph::Graph(Options options, std::vector<Group> groups, Actions& actions)
    : options_(options),
      actions_(actions),
      matches_(std::move(groups), options.world),
      steps_(matches_.groups().size(), options.stream_waits ? MUSTER_WAITS_MAX : 0),
      absences_(options.world),
      ranks_(first_lanes(options)),
      open_lanes_({ranks_, matches_, steps_, work_list_}, options.launch_depth) {}

// ---- clients -----------------------------------------------------------------------------------

bool Graph::attached(Rank rank) {
  const bool first = absences_.attached(rank);
  ranks_[rank].attached();
  matches_.attached(rank, first);
  return first;
}

void Graph::begin_run() {
  MUSTER_ASSERT(absences_.nobody());
  absences_.begin_run();
  for (const Rank rank : options_.world.locals()) matches_.attached(rank, false);
}

CausePtr Graph::detached(Rank rank, const std::string& text, Instant now, const CausePtr& heard) {
  RankLanes& r = ranks_[rank];
  if (!r.present()) return nullptr;
  CausePtr root = first_failure(r);
  if (root == nullptr) root = heard;
  Cause loss{Code::kPeerLost, static_cast<std::int32_t>(rank.value), text};
  if (root != nullptr) {
    loss.culprit = root->culprit;
    loss.text = root->text;
  }
  const CausePtr cause = new_fault(std::move(loss));
  absences_.left(rank, root != nullptr ? cause : nullptr);
  r.detached();
  for (std::uint32_t lane = 0; lane < r.lanes(); ++lane) stop_lane(rank, lane, cause);
  for (std::uint32_t g = 0; g < groups().size(); ++g)
    if (groups()[g].index_of(rank))
      work_list_.fail(matches_[GroupId(g)].end_all(cause, Epochs::Why::kLoss), cause);
  resolve(now);
  open_lanes_.close_all(rank);
  return cause;
}

void Graph::absent(Rank rank, const std::string& text, Instant now) {
  if (absences_.known(rank)) return;
  absences_.add(rank, new_fault(absences_.reason(rank, text)));
  const CausePtr absence = absences_.of(rank);
  if (absence == nullptr) return;  // it is still there
  work_list_.fail(matches_.waiting_for(rank), absence);
  resolve(now);
}

void Graph::heard(Rank rank, std::uint64_t fault) {
  if (ranks_[rank].present()) matches_.heard(rank, fault);
}

// ---- events ------------------------------------------------------------------------------------

Code Graph::submit(Request request, Instant now) {
  RankLanes& rank = ranks_[request.rank];
  MUSTER_ASSERT(rank.present() && rank.is_open(request.lane));
  LaneQueue& lane = rank.lane(request.lane);
  request.lane_id = rank.id(request.lane);
  if (request.value != lane.next_value()) return Code::kBadArgument;
  for (const std::uint64_t wait : request.waits) {
    if (wait == 0) continue;
    const std::uint32_t timeline = shm::point_timeline(wait);
    const bool known =
        timeline < rank.lanes() || (timeline >= shm::kClientTimelineFirst && timeline < shm::kTimelinesMax);
    if (!known) return Code::kBadArgument;
  }
  const CollectiveWork* const work = request.plan->collective();
  if (work != nullptr && !LaneTable::meets(request.lane_id)) return Code::kBadArgument;
  if (lane.full()) return Code::kBusy;
  lane.skip();
  LaneQueue::Start start{request, {}, false};
  if (work != nullptr) start.stamp = matches_[work->group].stamp(place_of(*work, request.lane_id));
  start.on_streams = options_.stream_waits && (work == nullptr || !groups()[work->group.value].spans());
  actions_.submitted(request);
  if (lane.failures().stopped()) {  // covered by the failure that is published already
    drop(request.rank, request.lane, start);
  } else {
    lane.push(start, now);
    rank.set_busy(request.lane, true);
    work_list_.mark_runnable(request.rank);
  }
  resolve(now);
  return Code::kOk;
}

Code Graph::signal(Rank rank, std::uint32_t timeline, std::uint64_t value, Instant now) {
  const Code code = ranks_[rank].signal(timeline, value, now);
  if (code != Code::kOk) return code;
  work_list_.mark_runnable(rank);
  resolve(now);
  return Code::kOk;
}

void Graph::reset_lane(Rank rank, std::uint32_t lane_index, Instant now) {
  LaneQueue& lane = ranks_[rank].lane(lane_index);
  if (!lane.failures().stopped()) return;
  const std::uint64_t fault = lane.failures().cause()->fault;
  for (const Place& place : lane.failures().noted()) matches_[place.group].move_on(place, fault);
  matches_.heard(rank, fault);
  actions_.resumed(rank, lane_index, lane.resume());
  work_list_.mark_runnable(rank);
  resolve(now);
}

void Graph::finished(std::uint32_t step_index, Instant now, const Status* failed) {
  StepTable::InFlight& flight = steps_.at(step_index);
  // Members of a step that was given up have received a fault already.
  const Step::Part& first = flight.step.parts.front();
  CausePtr cause;
  // A step between nodes also fails because its epoch has ended on one of them.
  if (failed != nullptr && !flight.given_up && first.plan->collective() != nullptr)
    cause = matches_[first.plan->collective()->group].ended(first.stamp.epoch);
  if (failed != nullptr && !flight.given_up && cause == nullptr)
    cause = new_fault(as_known_here(cause_of(flight.step, groups(), lane_names(), *failed), ranks_.world()));
  for (std::size_t i = 0; i < flight.step.parts.size(); ++i) {
    const Step::Part& part = flight.step.parts[i];
    StepTable::Member& member = flight.members[i];
    RankLanes& rank = ranks_[part.rank];
    LaneQueue& lane = rank.lane(part.lane);
    RankLanes::Load& load = rank.load(part.lane);
    --load.running;
    member.over = true;
    lane.moved_at(now);
    // A former client launched the part: the lane's queue holds starts of the present client only.
    const bool of_former = !rank.present() || member.generation != rank.generation();
    if (member.given_up) --load.given_up;
    if (member.given_up && !of_former) actions_.quarantined(part.rank, part.lane, --load.quarantined);
    const bool queued = !of_former && lane.is_oldest(part.value);  // else it was dropped, or its client left
    const bool over = queued ? lane.end_piece(part.value)
                             : steps_.of({part.rank, part.lane, part.value, member.generation}).empty();
    if (over) {
      const bool well =
          cause == nullptr && !member.given_up && (of_former || lane.failures().at(part.value) == nullptr);
      actions_.retired(part.rank, part.lane, part.value, *part.plan, well);
      if (queued) lane.finish(part.value, well);
      if (queued && well) actions_.reached(part.rank, part.lane, part.value, flight.step.key);
    }
    if (rank.present()) work_list_.mark_runnable(part.rank);
    if (of_former || cause == nullptr || member.given_up) continue;
    if (const CollectiveWork* work = part.plan->collective()) {
      const Place place = place_of(*work, part.lane_id);
      lane.failures().note(place);
      work_list_.fail(matches_[place.group].end(place, cause), cause);
    }
    stop_lane(part.rank, part.lane, cause, part.value);
  }
  if (cause != nullptr && options_.stream_waits)
    give_up_steps(steps_.behind(step_index), depending_on(*cause), step_index);
  steps_.give_back(step_index);
  resolve(now);
}

void Graph::ended_elsewhere(const transport::EpochEnd& end, Instant now) {
  for (std::uint32_t g = 0; g < groups().size(); ++g) {
    if (!groups()[g].spans() || groups()[g].key != end.group) continue;
    // The job ends on that node. The supervisor decides whether it ends here too.
    const Code code = end.code == Code::kJobEnded ? Code::kPeerLost : end.code;
    const CausePtr cause = new_fault(as_known_here({code, end.culprit, end.text}, ranks_.world()));
    const Epochs::Why why = end.loss ? Epochs::Why::kLoss : Epochs::Why::kOther;
    work_list_.fail(matches_[GroupId(g)].end_up_to(end.epoch, cause, why), cause);
  }
  resolve(now);
}

CausePtr Graph::abort(const std::vector<GroupId>& groups, Cause cause, Instant now, Epochs::Why why) {
  const CausePtr fault = new_fault(std::move(cause));
  for (const GroupId group : groups) work_list_.fail(matches_[group].end_all(fault, why), fault);
  resolve(now);
  return fault;
}

void Graph::give_up(Rank rank, std::uint32_t lane, Cause cause, Instant now) {
  if (ranks_[rank].lane(lane).has_next()) {
    stop_lane(rank, lane, new_fault(std::move(cause)));
    resolve(now);
  } else if (const auto launched = steps_.latest(rank, lane); launched && !steps_.at(*launched).given_up) {
    if (actions_.is_outside(*launched)) {
      give_up_steps({*launched}, new_fault(std::move(cause)), std::nullopt);
      return resolve(now);
    }
    // It may end in this turn, or wait for another node in the next: then tick() gives it up.
    steps_.at(*launched).deadline = now;
    steps_.at(*launched).left = std::move(cause);
  }
}

// The first round takes starts that wait for nothing on another lane of their rank. If that lane is overdue
// too, the first round stops it, and a start that waits for it fails with its cause.
void Graph::tick(Instant now) {
  const Instant before = std::exchange(last_tick_, now).value_or(now);
  if (now - before > kLate) {
    for (RankLanes& rank : ranks_) rank.forgive(before, now - before);
    steps_.forgive(before, now - before);
  }
  for (const std::uint32_t index : steps_.overdue(now)) {
    if (!actions_.is_outside(index)) continue;
    const StepTable::InFlight& flight = steps_.at(index);
    if (flight.left) {
      give_up_steps({index}, new_fault(*flight.left), std::nullopt);
      resolve(now);
      continue;
    }
    // Each time something moves, the step gets its whole timeout anew, and the time that was forgiven.
    if (const auto moved = actions_.moved_at(index);
        moved && later(*moved, flight.deadline - flight.since) > now)
      continue;
    const Step& step = flight.step;
    const std::vector<Step::Awaited> awaited = actions_.awaited(index, step);
    // While that was asked, the step may have ended: then finished() brings a better cause than an empty
    // list.
    if (!actions_.is_outside(index)) continue;
    give_up_steps({index},
                  new_fault(overdue(step, flight.allowed, groups(), lane_names(), ranks_.world(), awaited)),
                  std::nullopt);
    resolve(now);
  }
  for (const bool roots : {true, false})
    for (const Rank self : ranks_.world().locals())
      for (std::uint64_t left = ranks_[self].busy(); left != 0; left &= left - 1) {
        const auto lane = static_cast<std::uint32_t>(std::countr_zero(left));
        const RankLanes& rank = ranks_[self];
        if (const auto deadline = rank.deadline(lane); !deadline || *deadline > now) continue;
        const LaneQueue::Start& next = rank.lane(lane).next();
        if (roots && !next.arrived && rank.obstacle(lane, next, lane_names()).lane) continue;
        Cause cause = overdue(matches_, ranks_, lane_names(), self, lane);
        actions_.overdue(self, lane, cause);
        stop_lane(self, lane, new_fault(std::move(cause)));
        resolve(now);
      }
}

// `failed`: the step behind which these were launched. A member hears DEPENDENCY if its own start waits for
// that step. The other members hear the fault at the root.
void Graph::give_up_steps(const std::vector<std::uint32_t>& steps, const CausePtr& cause,
                          std::optional<std::uint32_t> failed) {
  const CausePtr root = passed_on(cause);
  const std::uint64_t number = failed ? steps_.at(*failed).step.number : 0;
  for (const std::uint32_t index : steps) {
    StepTable::InFlight& flight = steps_.at(index);
    if (flight.given_up) continue;
    flight.given_up = true;
    const bool collective = flight.step.parts.front().plan->collective() != nullptr;
    if (collective) actions_.cancel(index);
    for (std::uint32_t i = 0; i < flight.step.parts.size(); ++i) {
      const Step::Part part = flight.step.parts[i];
      RankLanes& rank = ranks_[part.rank];
      if (flight.members[i].given_up) continue;
      scheduler::give_up(rank, part.rank, part.lane, flight.members[i], actions_);
      if (!rank.present() || flight.members[i].generation != rank.generation()) continue;
      if (collective) {
        const Place place = place_of(*part.plan->collective(), part.lane_id);
        rank.lane(part.lane).failures().note(place);
        work_list_.fail(matches_[place.group].end(place, root), root);
      }
      const bool depends = !failed || flight.step.is_behind(i, *failed, number);
      stop_lane(part.rank, part.lane, depends ? cause : root, part.value);
    }
    if (options_.stream_waits) give_up_steps(steps_.behind(index), depending_on(*cause), index);
  }
}

// ---- progress ----------------------------------------------------------------------------------

// Carries out what an event has caused: stops failed lanes, and pumps ranks whose starts may go on. The loop
// ends because one fault ends a place at most once.
void Graph::resolve(Instant now) {
  // A lane that moves can release another one, so repeat until a whole round moves nothing.
  const auto pump = [this, now](Rank rank) {
    RankLanes& lanes = ranks_[rank];
    for (bool moved = true; std::exchange(moved, false);)
      for (std::uint64_t left = lanes.busy(); left != 0; left &= left - 1) {
        const auto lane = static_cast<std::uint32_t>(std::countr_zero(left));
        moved = pump_lane(rank, lane, now) || moved;
        if (!lanes.lane(lane).has_next()) lanes.set_busy(lane, false);
      }
    lanes.note_exposure(now);
  };
  while (true) {
    if (const auto failing = work_list_.take_failing()) {
      const LaneQueue& lane = ranks_[failing->rank].lane(failing->lane);
      // Another cause may have failed the start meanwhile.
      if (lane.has_next() && lane.next().request.value == failing->value)
        stop_lane(failing->rank, failing->lane, failing->cause);
    } else if (const auto rank = work_list_.take_runnable()) {
      if (ranks_[*rank].present()) pump(*rank);
    } else {
      for (const GroupPlaces::End& end : matches_.take_ended())
        actions_.ended({groups()[end.group.value].key, end.epoch, end.cause->code, end.cause->culprit,
                        end.why == Epochs::Why::kLoss, end.cause->text});
      return;
    }
  }
}

bool Graph::pump_lane(Rank rank, std::uint32_t lane_index, Instant now) {
  RankLanes& r = ranks_[rank];
  LaneQueue& lane = r.lane(lane_index);
  bool moved = false;
  while (lane.has_next() && r.load(lane_index).running < options_.launch_depth) {
    LaneQueue::Start& start = lane.next();
    if (lane.collective_launched() || start.arrived) break;
    const bool collective = start.request.plan->collective() != nullptr;
    // Kernels of this client, or work of former ones, may still run on the lane's stream.
    if (collective && r.load(lane_index).running > 0) break;
    const Cause* failed = nullptr;
    const RankLanes::Ready ready = r.readiness(lane_index, start, &failed);
    if (ready == RankLanes::Ready::kNo) break;
    if (ready == RankLanes::Ready::kFailed) {
      stop_lane(rank, lane_index, depending_on(*failed));
      return true;
    }
    if (collective) return arrive(rank, lane_index, now) || moved;
    const Arrival alone{rank, lane_index, start.request.value,  start.request.plan,
                        {},   now,        start.request.lane_id};
    launch({.kind = GroupPlaces::Match::Kind::kGo, .members = std::span(&alone, 1)}, now);
    moved = true;
  }
  return moved;
}

// True if the lane has changed: the collective was launched, or the lane has stopped.
bool Graph::arrive(Rank rank, std::uint32_t lane_index, Instant now) {
  LaneQueue& lane = ranks_[rank].lane(lane_index);
  LaneQueue::Start& start = lane.next();
  const CollectiveWork& work = *start.request.plan->collective();
  if (const CausePtr absence = absence_in(work, groups()[work.group.value].ranks, absences_)) {
    stop_lane(rank, lane_index, absence);
    return true;
  }
  const GroupPlaces::Match match = matches_[start.request.plan->collective()->group].arrive(
      {rank, lane_index, start.request.value, start.request.plan, start.stamp, now, start.request.lane_id,
       start.request.bases});
  switch (match.kind) {
    case GroupPlaces::Match::Kind::kWait:
      start.arrived = true;
      lane.moved_at(now);
      return false;
    case GroupPlaces::Match::Kind::kGo:
      launch(match, now);
      return true;
    case GroupPlaces::Match::Kind::kEnded:
      stop_lane(rank, lane_index, match.cause);
      return true;
    case GroupPlaces::Match::Kind::kDisagree:
      disagree(match, place_of(work, start.request.lane_id));
      return true;
  }
  return false;
}

void Graph::disagree(const GroupPlaces::Match& match, const Place& place) {
  const CausePtr cause = new_fault({Code::kMismatch, -1, match.differ});
  work_list_.fail(match.members, cause);
  work_list_.fail(matches_[place.group].end(place, cause), cause);
}

void Graph::meet(Instant now) {
  while (const auto place = matches_.take_unmatched()) {
    const auto& [group, lane] = *place;
    for (bool over = false; !over;) {
      const GroupPlaces::Match match = matches_[group].meet(lane);
      over = match.kind != GroupPlaces::Match::Kind::kGo;
      if (!over) launch(match, now);
      if (match.kind == GroupPlaces::Match::Kind::kDisagree)
        disagree(match, {group, lane, -1, -1, 0, false, 0});
    }
    resolve(now);
  }
}

void Graph::launch(const GroupPlaces::Match& match, Instant now) {
  const std::span<const Arrival> members = match.members;
  std::uint32_t index = 0;
  StepTable::InFlight& flight =
      steps_.take(members.size(), members.front().lane_id, *members.front().plan, &index);
  flight.since = now;
  for (const Arrival& member : members) {
    RankLanes& rank = ranks_[member.rank];
    const LaneQueue::Start& start = rank.lane(member.lane).next();
    const Request& request = start.request;
    MUSTER_ASSERT(request.value == member.value);
    if (request.plan->collective() != nullptr)
      if (const Instant deadline = later(now, request.timeout); deadline < flight.deadline) {
        flight.deadline = deadline;
        flight.allowed = request.timeout;
      }
    const bool waits = member.unmet > 0;
    if (start.on_streams) steps_.add_waits(flight.step, rank, start);
    rank.lane(member.lane).launch_next(index, !waits);
    if (waits) rank.lane(member.lane).moved_at(now);
    ++rank.load(member.lane).running;
    flight.step.parts.push_back({member.rank, member.lane, member.value, member.plan, member.at,
                                 member.lane_id, member.bases, member.stamp, waits});
    flight.members.push_back({rank.generation()});
  }
  const Arrival& first = members.front();
  const CollectiveWork* const work = first.plan->collective();
  flight.step.active = match.active;
  flight.step.key = {};
  if (work != nullptr && groups()[work->group.value].spans())
    flight.step.key = {key_of(place_of(*work, first.lane_id), groups(), lane_names()), first.stamp.epoch,
                       match.number};
  actions_.launch(index, flight.step);
}

// ---- failure -----------------------------------------------------------------------------------

CausePtr Graph::new_fault(Cause cause) {
  cause.fault = ++faults_;
  return std::make_shared<const Cause>(std::move(cause));
}

void Graph::stop_lane(Rank rank, std::uint32_t lane_index, const CausePtr& cause,
                      std::optional<std::uint64_t> failed_value) {
  RankLanes& r = ranks_[rank];
  LaneQueue& lane = r.lane(lane_index);
  const std::optional<std::uint64_t> from = lane.stop(cause, failed_value);
  if (!from) return;
  while (lane.has_next()) drop(rank, lane_index, lane.take_newest());
  if (!r.present()) return;
  actions_.stopped(rank, lane_index, *from, *lane.failures().cause());
  work_list_.mark_runnable(rank);
  if (!options_.stream_waits) return;
  // Now, because its last member may arrive next.
  if (const auto behind = arrived_behind_failure(r))
    stop_lane(rank, behind->first, depending_on(*behind->second));
}

// A start of a stopped lane will not be launched, or not for all whom it was to meet. Launched steps for
// those whom it has met still use its memory and its plan.
void Graph::drop(Rank rank, std::uint32_t lane_index, const LaneQueue::Start& start) {
  RankLanes& r = ranks_[rank];
  const std::uint64_t value = start.request.value;
  const CollectiveWork* work = start.request.plan->collective();
  const bool met = start.arrived &&
                   matches_[work->group].withdraw(
                       {rank, lane_index, value, start.request.plan, start.stamp, {}, start.request.lane_id});
  if (work != nullptr && r.present()) {  // if not present, detached() ends all its places
    LaneQueue& lane = r.lane(lane_index);
    const Place place = place_of(*work, start.request.lane_id);
    GroupPlaces& places = matches_[place.group];
    lane.failures().note(place);
    if (!met && absence_in(*work, groups()[work->group.value].ranks, absences_) != nullptr) {
      places.give_back(place, start.stamp);
    } else {
      CausePtr cause = passed_on(lane.failures().cause());
      if (met && places.ended_by(place, cause->fault)) cause = new_fault(Cause(*cause));
      work_list_.fail(places.drop(place, start.stamp, cause), cause);
    }
  }
  if (start.pieces == 0) return actions_.retired(rank, lane_index, value, *start.request.plan, false);
  for (StepTable::Member* const member : steps_.of({rank, lane_index, value, r.generation()}))
    if (!member->given_up) scheduler::give_up(r, rank, lane_index, *member, actions_);
}

}  // namespace muster::scheduler
