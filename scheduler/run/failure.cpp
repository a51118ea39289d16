// The failing half of the graph: what stops a lane, and who hears of it.
#include "scheduler/run/graph.hpp"

#include <algorithm>

namespace muster::scheduler {

// Ends the lane's starts that are not running. Idempotent while it is stopped. `told_at`: the meeting where
// it happened, whose members all hear of it. A failure that the rank has got over already, everywhere or
// where one of the starts belongs, is another one when it comes back: those whom it takes with it may have
// got over it too, and have to hear.
void Graph::stop_lane(Rank rank, std::uint32_t lane_index, Verdict verdict, const Meeting* told_at) {
  RankState& r = state(rank);
  Lane& lane = r.lanes[lane_index];
  const bool stopped = lane.failed_from != 0 && lane.failed_to == 0;
  if (stopped) return;
  lane.first_event = verdict.event;
  const std::uint64_t told_of = known_since(r, verdict.event);
  lane.told_at.reset();
  bool again = told_of != kNever;
  for (std::size_t i = lane.launched; i < lane.queue.size() && !again; ++i)
    again = is_over(lane_index, lane.queue[i], verdict.event);
  lane.numbers.clear();
  if (told_of == kNever) lane.number(verdict.event);
  if (again) lane.number(verdict.event = ++failures_);
  const std::uint64_t from =
      lane.launched < lane.queue.size() ? lane.queue[lane.launched].request.value : lane.last + 1;
  lane.failed_from = from;
  lane.failed_to = 0;
  lane.verdict = verdict;
  if (told_at != nullptr) lane.told_at = *told_at;
  lane.told_of = told_of;
  while (lane.queue.size() > lane.launched) {
    const Start& start = lane.queue.back();
    if (start.arrived) {
      sequencer_.withdraw({rank, lane_index, start.request.value, start.request.plan});
    } else {
      note_dropped(r, lane_index, start);
    }
    actions_.retired(rank, lane_index, start.request.value, *start.request.plan, false);
    lane.queue.pop_back();
  }
  if (r.present) actions_.stopped(rank, lane_index, from, verdict);
}

// Whether the rank has gone on where the start is to meet others, though its lane is stopped by the failure:
// a loss had hidden it there. Who has heard of it right there has not gone on.
bool Graph::is_over(std::uint32_t lane, const Start& start, std::uint64_t event) const {
  const CollectiveWork* work = start.request.plan->collective();
  if (work == nullptr) return false;
  const Meeting meeting = meeting_of(*work, lane);
  const bool told = state(start.request.rank).lanes[lane].told_of_at(meeting);
  return !told && sequencer_.is_over(meeting, event, start.submission);
}

// A start falls because its lane is stopped. Those who leave are heard of in all their groups.
void Graph::note_dropped(const RankState& r, std::uint32_t lane_index, const Start& start) {
  const CollectiveWork* work = start.request.plan->collective();
  if (work == nullptr || !r.present) return;
  if (absence_in(*work) != nullptr) return;  // nobody waits there, and whoever comes hears why
  const Lane& lane = r.lanes[lane_index];
  const Meeting meeting = meeting_of(*work, lane_index);
  // What was submitted in knowledge of it would have gone on: its peers may have gone on too.
  if (lane.told_of_at(meeting) && start.submission <= lane.told_of) return;
  tell_known(r, meeting, start.submission);
  dropped_.push_back({meeting, lane.verdict, start.submission});
  Verdict& verdict = dropped_.back().verdict;
  if (verdict.code == Code::kDependency) verdict.code = verdict.cause;
}

void Graph::fail_lane(Rank rank, std::uint32_t lane, const Verdict& verdict, const Meeting* told_at,
                      Instant now) {
  stop_lane(rank, lane, verdict, told_at);
  spread(now);
}

void Graph::fail_members(const std::vector<Sequencer::Arrival>& members, const Verdict& verdict,
                         Instant now) {
  stop_members(members, verdict);
  spread(now);
}

void Graph::stop_members(const std::vector<Sequencer::Arrival>& members, const Verdict& verdict) {
  for (const auto& member : members) {
    const Meeting meeting = meeting_of(*member.plan->collective(), member.lane);
    stop_lane(member.rank, member.lane, verdict, &meeting);
    stirred_.push_back(member.rank);
  }
}

// Takes those out who wait for what stopped lanes have dropped, and on from there; each meeting falls once of
// a failure, so this ends. Only then do the ranks go on: a lane that hears of the failure may submit to a
// channel that was still to be cleared. Whoever fails meanwhile leaves the rest to the call that is under
// way.
void Graph::spread(Instant now) {
  if (std::exchange(spreading_, true)) return;
  while (!dropped_.empty() || !stirred_.empty()) {
    if (dropped_.empty()) {
      const Rank rank = stirred_.back();
      stirred_.pop_back();
      if (state(rank).present) pump(rank, now);
      continue;
    }
    const Dropped dropped = std::move(dropped_.back());
    dropped_.pop_back();
    if (!sequencer_.is_news(dropped.meeting, dropped.verdict.event, dropped.submission)) continue;
    stop_members(sequencer_.break_up(dropped.meeting, dropped.verdict), dropped.verdict);
  }
  spreading_ = false;
}

void Graph::abort(GroupId group, Verdict verdict, Instant now) {
  verdict.event = ++failures_;
  fail_members(sequencer_.break_group(group, verdict), verdict, now);
}

void Graph::give_up(Rank rank, std::uint32_t lane, Verdict verdict, Instant now) {
  const Lane& l = state(rank).lanes[lane];
  if (l.launched == l.queue.size()) return;
  verdict.event = ++failures_;
  end_next(rank, lane, verdict, now);
}

// The lane's next start fails, and with it its meeting if it has come to one.
void Graph::end_next(Rank rank, std::uint32_t lane, const Verdict& verdict, Instant now) {
  const Lane& l = state(rank).lanes[lane];
  const Start& next = l.queue[l.launched];
  const CollectiveWork* work = next.request.plan->collective();
  if (work != nullptr && next.arrived) {
    fail_members(sequencer_.break_up(meeting_of(*work, lane), verdict), verdict, now);
  } else {
    fail_lane(rank, lane, verdict, nullptr, now);
    pump(rank, now);
  }
}

// ---- departures

std::optional<Verdict> Graph::detached(Rank rank, const std::string& text, Instant now,
                                       const Verdict* heard) {
  RankState& r = state(rank);
  if (!r.present) return std::nullopt;
  Verdict verdict{Code::kPeerLost, static_cast<std::int32_t>(rank.value), text, ++failures_};
  const Verdict* root = failure_of(r);
  if (root == nullptr) root = heard;
  if (root != nullptr) {
    verdict.culprit = root->culprit;
    verdict.text = root->text;
    r.root = verdict;
    if (r.absence) r.absence = verdict;
  }
  r.present = false;
  r.exposed_since.reset();
  // Its own queues first, so that nothing of it is left in the sequencer when the groups hear.
  for (std::uint32_t lane = 0; lane < MUSTER_LANE_COUNT; ++lane) stop_lane(rank, lane, verdict, nullptr);
  sequencer_.forget_owed(rank);
  leave_groups(rank, verdict, now);
  const auto here = [](const RankState& other) { return other.present; };
  if (std::none_of(ranks_.begin(), ranks_.end(), here)) forget_absences();
  return verdict;
}

void Graph::absent(Rank rank, const std::string& text, Instant now) {
  RankState& r = state(rank);
  if (r.absence) return;
  r.absence = r.root.value_or(Verdict{Code::kPeerLost, static_cast<std::int32_t>(rank.value), text, 0});
  r.absence->event = ++failures_;
  ++absences_;
  if (!r.present) leave_groups(rank, *r.absence, now);
}

// What made ranks leave was of the run that is over: who does not come to the next has another reason.
void Graph::expect_all() {
  for (RankState& r : ranks_) r.root.reset();
  forget_absences();
}

void Graph::forget_absences() {
  for (RankState& r : ranks_) r.absence.reset();
  absences_ = 0;
}

void Graph::leave_groups(Rank rank, const Verdict& verdict, Instant now) {
  std::vector<Sequencer::Arrival> waiting;
  for (std::uint32_t g = 0; g < groups().size(); ++g) {
    const auto& members = groups()[g].ranks;
    if (std::find(members.begin(), members.end(), rank) == members.end()) continue;
    const auto here = sequencer_.break_group(GroupId(g), verdict);
    waiting.insert(waiting.end(), here.begin(), here.end());
  }
  fail_members(waiting, verdict, now);
}

// The first failure that a lane of the rank still stands for.
const Verdict* Graph::failure_of(const RankState& r) const {
  const Lane* first = nullptr;
  for (const Lane& lane : r.lanes) {
    const bool stopped = lane.failed_from != 0 && lane.failed_to == 0;
    if (stopped && (first == nullptr || lane.first_event < first->first_event)) first = &lane;
  }
  return first != nullptr ? &first->verdict : nullptr;
}

// Why the collective cannot complete, if a rank that it needs will not come: the first such cause.
const Verdict* Graph::absence_in(const CollectiveWork& work) const {
  if (absences_ == 0) return nullptr;
  const std::vector<Rank>& members = groups()[work.group.value].ranks;
  const Verdict* first = nullptr;
  for (std::size_t i = 0; i < members.size(); ++i) {
    const auto index = static_cast<std::int32_t>(i);
    const bool needed =
        !work.point_to_point() || index == work.collective.root || index == work.collective.receiver;
    const RankState& member = state(members[i]);
    const bool missing = needed && !member.present && member.absence;
    if (missing && (first == nullptr || member.absence->event < first->event)) first = &*member.absence;
  }
  return first;
}

}  // namespace muster::scheduler
