#include "scheduler/run/graph.hpp"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

namespace muster::scheduler {

Graph::Graph(GraphOptions options, std::vector<Group> groups, Actions& actions)
    : options_(options), actions_(actions), sequencer_(std::move(groups)), ranks_(options.world) {
  for (RankState& rank : ranks_) rank.lanes = new_lanes();
  const std::uint32_t steps = options.world * MUSTER_LANE_COUNT * options.launch_depth;
  steps_.resize(steps);
  free_steps_.reserve(steps);
  touched_.reserve(options.world);
  for (std::uint32_t i = steps; i > 0; --i) free_steps_.push_back(i - 1);
  for (InFlight& step : steps_) {
    step.step.parts.reserve(kNarrow);
    step.generations.reserve(kNarrow);
  }
  rooms_.resize(sequencer_.groups().size() * MUSTER_LANE_COUNT);
  for (std::uint32_t g = 0; g < sequencer_.groups().size(); ++g) make_rooms(GroupId(g));
}

void Graph::set_group(GroupId group, Group now) {
  sequencer_.set_group(group, std::move(now));
  make_rooms(group);
}

void Graph::make_rooms(GroupId group) {
  const std::size_t members = sequencer_.groups()[group.value].ranks.size();
  for (std::uint32_t lane = 0; lane < MUSTER_LANE_COUNT; ++lane) {
    Room& room = rooms_[group.value * MUSTER_LANE_COUNT + lane];
    room = Room{};
    if (members > kNarrow) room.reserve(members);
  }
}

std::vector<Graph::Lane> Graph::new_lanes() const {
  std::vector<Lane> lanes;
  lanes.reserve(MUSTER_LANE_COUNT);
  for (std::uint32_t lane = 0; lane < MUSTER_LANE_COUNT; ++lane) lanes.emplace_back(options_.lane_depth);
  return lanes;
}

// ---- births and deaths -------------------------------------------------------------------------

void Graph::attached(Rank rank) {
  RankState& r = state(rank);
  sequencer_.forget_owed(rank);
  if (r.absence) --absences_;
  const std::uint32_t generation = r.generation + 1;
  const auto running = r.running;
  r = RankState{};
  r.lanes = new_lanes();
  r.present = true;
  r.running = running;
  r.generation = generation;
  r.born_after = failures_;
}

// ---- submission --------------------------------------------------------------------------------

bool Graph::lane_full(Rank rank, std::uint32_t lane) const {
  return state(rank).lanes[lane].queue.full();
}

Code Graph::submit(const Request& request, Instant now) {
  RankState& r = state(request.rank);
  MUSTER_ASSERT(r.present && request.lane < MUSTER_LANE_COUNT);
  Lane& lane = r.lanes[request.lane];
  if (request.value != lane.last + 1) return Code::kBadArgument;
  for (const std::uint64_t wait : request.waits) {
    if (wait == 0) continue;
    const std::uint32_t timeline = shm::point_timeline(wait);
    const bool known = timeline < MUSTER_LANE_COUNT ||
                       (timeline >= shm::kClientTimelineFirst && timeline < shm::kTimelinesMax);
    if (!known) return Code::kBadArgument;
  }
  if (lane.queue.full()) return Code::kBusy;
  lane.last = request.value;
  if (lane.failed_from != 0 && lane.failed_to == 0) {  // stopped: covered by the verdict already published
    actions_.submitted(request);
    const Start fallen{request, sequencer_.next_submission()};
    // Got over on another lane, or where the start belongs: what falls from now on is news.
    const auto known = std::erase_if(lane.numbers, [&](std::uint64_t event) { return knows(r, event); });
    if (known > 0 || is_over(request.lane, fallen, lane.verdict.event)) {
      lane.verdict.event = ++failures_;
      lane.number(lane.verdict.event);
      lane.told_at.reset();
    }
    note_dropped(r, request.lane, fallen);
    actions_.retired(request.rank, request.lane, request.value, *request.plan, false);
    spread(now);
    return Code::kOk;
  }
  const bool pushed = lane.queue.push(Start{request, sequencer_.next_submission()});
  MUSTER_ASSERT(pushed);
  if (lane.launched + 1 == lane.queue.size()) lane.moved = now;
  actions_.submitted(request);
  pump(request.rank, now);
  return Code::kOk;
}

Code Graph::signal(Rank rank, std::uint32_t timeline, std::uint64_t value, Instant now) {
  RankState& r = state(rank);
  if (timeline < shm::kClientTimelineFirst || timeline >= shm::kTimelinesMax) return Code::kBadArgument;
  std::uint64_t& current = r.timelines[timeline - shm::kClientTimelineFirst];
  if (value < current) return Code::kBadArgument;
  if (value > current) r.signalled[timeline - shm::kClientTimelineFirst] = now;
  current = value;
  pump(rank, now);
  return Code::kOk;
}

void Graph::reset_lane(Rank rank, std::uint32_t lane_index, Instant now) {
  Lane& lane = state(rank).lanes[lane_index];
  if (lane.failed_from == 0 || lane.failed_to != 0) return;
  lane.failed_to = lane.last;
  remember(lane);
  for (const std::uint64_t event : lane.numbers) acknowledge(rank, event);
  actions_.resumed(rank, lane_index, lane.failed_to);
  pump(rank, now);
}

void Graph::acknowledge(Rank rank, std::uint64_t event) {
  RankState& r = state(rank);
  if (!r.present || event == 0 || knows(r, event)) return;
  if (r.known.size() == kKnownMax) {  // what is forgotten here is noted wherever it is still owed
    sequencer_.acknowledge(rank, r.known.front().event, r.known.front().at);
    r.known.erase(r.known.begin());
  }
  r.known.push_back({event, sequencer_.submissions()});
}

// How many submissions there were when the rank got over the failure.
std::uint64_t Graph::known_since(const RankState& r, std::uint64_t event) {
  if (event <= r.born_after) return 0;
  const auto is_it = [event](const Known& known) { return known.event == event; };
  const auto found = std::find_if(r.known.begin(), r.known.end(), is_it);
  return found != r.known.end() ? found->at : kNever;
}

// What a rank knew when it submitted a start, that start need not be told. One from before then must be: it
// belongs to what the others have given up.
void Graph::tell_known(const RankState& r, const Meeting& meeting, std::uint64_t submission) {
  if (!sequencer_.owes(meeting, submission)) return;
  for (const Known& known : r.known)
    if (known.at < submission) sequencer_.acknowledge(meeting, known.event, known.at);
}

// Points of a failure stay failed after the reset. Beyond the bound the two oldest are taken for one, with
// what lies between them: a start that waits for a point so long ago fails where it might have run.
void Graph::remember(Lane& lane) {
  lane.before.push_back({lane.failed_from, lane.failed_to, lane.verdict});
  if (lane.before.size() <= kFailuresKept) return;
  lane.before[1].from = lane.before[0].from;
  lane.before.erase(lane.before.begin());
}

// ---- progress ----------------------------------------------------------------------------------

void Graph::pump(Rank rank, Instant now) {
  // A lane that moves can release another one, so turn until a whole round moves nothing.
  for (bool moved = true; moved;) {
    moved = false;
    for (std::uint32_t lane = 0; lane < MUSTER_LANE_COUNT; ++lane) {
      moved = pump_lane(rank, lane, now) || moved;
      // Nothing more may arrive where something has just been dropped, before that place is cleared.
      if (!dropped_.empty()) {
        stirred_.push_back(rank);
        return;
      }
    }
  }
  note_exposure(state(rank), now);
}

bool Graph::pump_lane(Rank rank, std::uint32_t lane_index, Instant now) {
  RankState& r = state(rank);
  Lane& lane = r.lanes[lane_index];
  bool moved = false;
  // Work of former clients may still run on the lane's stream, and has its place there.
  const std::uint32_t& running = r.running[lane_index];
  while (lane.launched < lane.queue.size() && running < options_.launch_depth) {
    if (lane.launched_collective) break;
    Start& start = lane.queue[lane.launched];
    if (start.arrived) break;
    const bool collective = start.request.plan->collective() != nullptr;
    if (collective && running > 0) break;
    const Verdict* failed = nullptr;
    const Ready ready = readiness(r, lane_index, start, &failed);
    if (ready == Ready::kNo) break;
    if (ready == Ready::kFailed) {
      const Code cause = failed->code == Code::kDependency ? failed->cause : failed->code;
      // The end of a session is nothing that a lane gets over: what waited ends of it too.
      const Code code = is_session_end(cause) ? cause : Code::kDependency;
      const Verdict verdict{code, failed->culprit, failed->text, failed->event, cause};
      fail_lane(rank, lane_index, verdict, nullptr, now);
      return true;
    }
    if (collective) {
      if (!arrive(rank, lane_index, start, now)) break;
      moved = true;
      break;  // one collective at a time; arrive() has launched it or stopped the lane
    }
    const Sequencer::Arrival alone{rank, lane_index, start.request.value, start.request.plan, now};
    launch(std::span(&alone, 1), now);
    moved = true;
  }
  return moved;
}

Graph::Ready Graph::readiness(const RankState& r, std::uint32_t lane_index, const Start& start,
                              const Verdict** failed) const {
  for (const std::uint64_t wait : start.request.waits) {
    if (wait == 0) continue;
    const std::uint32_t timeline = shm::point_timeline(wait);
    const std::uint64_t value = shm::point_value(wait);
    if (timeline >= shm::kClientTimelineFirst) {
      if (r.timelines[timeline - shm::kClientTimelineFirst] < value) return Ready::kNo;
      continue;
    }
    const Lane& other = r.lanes[timeline];
    if (const Verdict* verdict = failure_at(other, value)) {
      *failed = verdict;
      return Ready::kFailed;
    }
    if (timeline == lane_index && value < start.request.value) continue;  // the lane's own order
    if (other.reached < value) return Ready::kNo;
  }
  return Ready::kYes;
}

// Why the lane never reached `value`; nullptr if it has, or may yet.
const Verdict* Graph::failure_at(const Lane& lane, std::uint64_t value) {
  const bool latest =
      lane.failed_from != 0 && value >= lane.failed_from && (lane.failed_to == 0 || value <= lane.failed_to);
  if (latest) return &lane.verdict;
  for (const Failed& failed : lane.before)
    if (value >= failed.from && value <= failed.to) return &failed.verdict;
  return nullptr;
}

// True if the state of the lane changed: the collective was launched, or the lane was stopped.
bool Graph::arrive(Rank rank, std::uint32_t lane, Start& start, Instant now) {
  const CollectiveWork& work = *start.request.plan->collective();
  const Meeting here = meeting_of(work, lane);
  if (const Verdict* absence = absence_in(work)) {
    fail_lane(rank, lane, *absence, &here, now);  // whoever comes there hears the same
    return true;
  }
  tell_known(state(rank), here, start.submission);
  auto outcome =
      sequencer_.arrive({rank, lane, start.request.value, start.request.plan, now, start.submission});
  switch (outcome.kind) {
    case Sequencer::Outcome::Kind::kWait:
      start.arrived = true;
      state(rank).lanes[lane].moved = now;
      return false;
    case Sequencer::Outcome::Kind::kRefuse:
      fail_lane(rank, lane, outcome.verdict, &here, now);
      return true;
    case Sequencer::Outcome::Kind::kGo:
      launch(outcome.members, now);
      return true;
    case Sequencer::Outcome::Kind::kDisagree:
      start.arrived = true;
      outcome.verdict.event = ++failures_;
      fail_members({outcome.members.begin(), outcome.members.end()}, outcome.verdict, now);
      return true;
  }
  return false;
}

void Graph::launch(std::span<const Sequencer::Arrival> members, Instant now) {
  MUSTER_ASSERT(!free_steps_.empty());  // each has a place of its own on some lane: launch_depth of them
  const std::uint32_t index = free_steps_.back();
  free_steps_.pop_back();
  InFlight& in_flight = steps_[index];
  in_flight.used = true;
  in_flight.since = now;
  exchange(in_flight, room_of(members.size(), members.front().lane, *members.front().plan));
  in_flight.step.parts.clear();
  in_flight.generations.clear();
  for (const auto& member : members) {
    RankState& r = state(member.rank);
    Lane& lane = r.lanes[member.lane];
    Start& start = lane.queue[lane.launched];
    MUSTER_ASSERT(start.request.value == member.value);
    start.launched = true;
    start.arrived = false;
    ++lane.launched;
    lane.launched_collective = member.plan->collective() != nullptr;
    ++r.running[member.lane];
    in_flight.step.parts.push_back({member.rank, member.lane, member.value, member.plan, member.at});
    in_flight.generations.push_back(r.generation);
  }
  ++steps_in_flight_;
  actions_.launch(index, in_flight.step);
}

Graph::Room* Graph::room_of(std::size_t members, std::uint32_t lane, const Plan& plan) {
  if (members <= kNarrow) return nullptr;
  return &rooms_[plan.collective()->group.value * MUSTER_LANE_COUNT + lane];
}

// Gives the step the room, or takes it back: what it had before lies there meanwhile.
void Graph::exchange(InFlight& step, Room* room) {
  if (room == nullptr) return;
  step.step.parts.swap(room->parts);
  step.generations.swap(room->generations);
}

void Graph::finished(std::uint32_t step_index, Instant now) {
  MUSTER_ASSERT(step_index < steps_.size() && steps_[step_index].used);
  InFlight& in_flight = steps_[step_index];
  const Step::Part& first = in_flight.step.parts.front();
  Room* const room = room_of(in_flight.step.parts.size(), first.lane, *first.plan);
  touched_.clear();
  for (std::size_t i = 0; i < in_flight.step.parts.size(); ++i) {
    const Step::Part& part = in_flight.step.parts[i];
    RankState& r = state(part.rank);
    --r.running[part.lane];
    r.lanes[part.lane].moved = now;
    actions_.retired(part.rank, part.lane, part.value, *part.plan, true);
    if (!r.present) continue;
    touched_.push_back(part.rank);
    if (in_flight.generations[i] != r.generation) continue;  // another client's: it has its place now
    Lane& lane = r.lanes[part.lane];
    MUSTER_ASSERT(lane.launched > 0 && lane.queue.front().request.value == part.value);
    lane.queue.pop();
    --lane.launched;
    lane.launched_collective = false;
    lane.reached = part.value;
    actions_.reached(part.rank, part.lane, part.value);
  }
  exchange(in_flight, room);
  in_flight.used = false;
  --steps_in_flight_;
  free_steps_.push_back(step_index);
  for (const Rank rank : touched_) pump(rank, now);
}

// ---- for reports -------------------------------------------------------------------------------

std::vector<Graph::Head> Graph::heads() const {
  std::vector<Head> heads;
  for (std::uint32_t rank = 0; rank < ranks_.size(); ++rank) {
    const RankState& r = ranks_[rank];
    if (!r.present) continue;
    for (std::uint32_t lane = 0; lane < MUSTER_LANE_COUNT; ++lane) {
      const Lane& l = r.lanes[lane];
      if (l.launched == l.queue.size()) continue;
      const Start& start = l.queue[l.launched];
      Head head{Rank(rank), lane, start.request.plan, start.arrived, {}, {}};
      if (!start.arrived) {
        Obstacle obstacle = waiting_for(r, lane, start);
        head.obstacle = std::move(obstacle.text);
        head.blocking_lane = obstacle.lane;
      }
      heads.push_back(std::move(head));
    }
  }
  return heads;
}

bool Graph::has_submitted(Rank rank, std::uint32_t lane, GroupId group) const {
  const Lane& l = state(rank).lanes[lane];
  for (std::size_t i = l.launched; i < l.queue.size(); ++i) {
    const CollectiveWork* work = l.queue[i].request.plan->collective();
    if (work != nullptr && work->group == group) return true;
  }
  return false;
}

std::vector<Graph::Running> Graph::running() const {
  std::vector<Running> running;
  for (const InFlight& flight : steps_)
    if (flight.used && flight.step.parts.front().plan->collective() != nullptr)
      running.push_back({&flight.step, flight.since});
  return running;
}

void Graph::note_exposure(RankState& r, Instant now) {
  const Lane& compute = r.lanes[MUSTER_LANE_COMPUTE];
  bool waits = false;
  if (r.present && !compute.queue.empty() && compute.launched == 0) {
    const Start& head = compute.queue.front();
    waits = head.request.plan->collective() != nullptr;
    for (const std::uint64_t wait : head.request.waits) {
      const std::uint32_t timeline = wait == 0 ? 0 : shm::point_timeline(wait);
      if (timeline == MUSTER_LANE_COMPUTE || timeline >= MUSTER_LANE_COUNT) continue;
      waits = waits || r.lanes[timeline].reached < shm::point_value(wait);
    }
  }
  if (waits == r.exposed_since.has_value()) return;
  if (waits) {
    r.exposed_since = now;
  } else {
    r.exposed += now - *r.exposed_since;
    r.exposed_since.reset();
  }
}

}  // namespace muster::scheduler
