#include "daemon/engine/observe/metrics.hpp"

#include "api/base/log.hpp"
#include "api/shm/endpoint.hpp"

#include <algorithm>
#include <utility>

namespace muster::engine {

Metrics::Metrics(const control::JobSpec& spec, unsigned workers, const scheduler::Graph& graph,
                 const scheduler::Executor& executor, const RankSlots& slots, const DirectPages* direct_pages,
                 Tally tally)
    : spec_(spec),
      graph_(graph),
      executor_(executor),
      slots_(slots),
      direct_pages_(direct_pages),
      cores_for_all_(graph.lanes().world().local_count() <=
                     std::max(workers, std::thread::hardware_concurrency())),
      flight_log_(graph.lanes().world()),
      stragglers_(graph.lanes().world(), static_cast<std::uint32_t>(graph.groups().size())),
      finished_(graph.lanes().world()),
      tally_(std::move(tally)) {
  counted_.reserve(graph.lanes().world().local_count());
  for (std::uint32_t g = 0; g < graph_.groups().size(); ++g)
    stragglers_.set_group(GroupId(g), graph_.groups()[g].ranks);
}

Result<shm::Descriptor> Metrics::counters() const {
  return read_only(tally_.descriptor());
}

std::optional<blame::RankState::LastOperation> Metrics::finished(Rank rank) const {
  const auto& last = finished_[rank];
  if (!last) return std::nullopt;
  return blame::RankState::LastOperation{graph_.groups()[last->group.value].name, last->label, Path::kEngine,
                                         last->number, last->at};
}

// ---- groups, ranks and plans that come and go -----------------------------------------------------

void Metrics::set_group(GroupId group) {
  stragglers_.set_group(group, graph_.groups()[group.value].ranks);
  tally_.set_group(group, graph_.groups()[group.value]);
}

void Metrics::forget_group(GroupId group) {
  stragglers_.set_group(group, {});
  straggler_log_.forget(group);
  tally_.set_group(group, {});
  flight_log_.forget(group);
  for (auto& last : finished_)
    if (last && last->group == group) last.reset();
}

void Metrics::attached(Rank rank) {
  finished_[rank].reset();
  flight_log_.attached(rank);
}

void Metrics::left(Rank rank, Instant now) {
  lateness_changes_.clear();
  stragglers_.left(rank, lateness_changes_);
  log_stragglers(now);
}

void Metrics::expect(const scheduler::CollectiveWork& work) {
  stragglers_.expect(work.group);
  if (work.point_to_point()) flight_log_.expect(work.group, work.collective.root, work.collective.receiver);
}

// ---- starts ------------------------------------------------------------------------------------

void Metrics::submitted(const scheduler::Request& request, Instant now) {
  tally_.submitted(request.rank, *request.plan);
  if (!graph_.lanes()[request.rank].lane(request.lane).failures().stopped())
    flight_log_.submitted(request, now);
}

void Metrics::launched(const scheduler::Step& step, Instant now) {
  const scheduler::Step::Part& first = step.parts.front();
  if (const scheduler::CollectiveWork* work = first.plan->collective())
    flight_log_.launched(step, graph_.matches()[work->group].number_of(first.lane_id, first.stamp), now);
}

// The flight log holds points of the rank's present session, so starts of other sessions are not noted.
void Metrics::retired(const Retired& start, const scheduler::Plan& plan,
                      const scheduler::Executor::Finished& step) {
  tally_.retired(start.rank, plan, start.well, start.well ? step.end - step.begin : Nanos(0));
  const scheduler::CollectiveWork* work = plan.collective();
  if (work == nullptr || !start.present) return;
  const LaneId lane = graph_.lanes()[start.rank].id(start.lane);
  const FlightEntry* entry = flight_log_.retired(start.rank, start.lane, start.value, start.well,
                                                 graph_.matches()[work->group].matched(lane), step.end);
  if (entry != nullptr && start.well)
    finished_[start.rank] = LastFinished{work->group, plan.label(), entry->number, step.end};
}

// ---- timers ------------------------------------------------------------------------------------

void Metrics::tick(Instant now) {
  if (!tally_.due(now)) return;
  look_for_stragglers(now);
  counted_.clear();
  for (const RankSlot& slot : slots_.all())
    counted_.push_back({slot.session.get(), slot.session
                                                ? graph_.lanes()[slot.session->options().rank].exposed().all
                                                : Nanos(0)});
  for (std::uint32_t group = 0; group < graph_.groups().size(); ++group)
    if (graph_.groups()[group].spans()) tally_.set_traffic(GroupId(group), executor_.traffic(GroupId(group)));
  tally_.write(counted_, direct_pages_, stragglers_, now);
}

void Metrics::look_for_stragglers(Instant now) {
  lateness_changes_.clear();
  stragglers_.look(direct_pages_, now, lateness_changes_);
  log_stragglers(now);
}

// Logs the latest changes.
void Metrics::log_stragglers(Instant now) {
  for (const StragglerStatistics::Change& change : lateness_changes_) straggler_log_.changed(change.group);
  if (!cores_for_all_) return;
  for (const GroupId group : straggler_log_.due(now)) {
    std::vector<blame::Straggler> late = stragglers_.stragglers_of(group);
    if (!straggler_log_.say(group, !late.empty(), now)) continue;
    const std::string& name = graph_.groups()[group.value].name;
    if (late.empty()) {
      MUSTER_LOG(kInfo, "engine", "job {}: group {}: nobody comes late any more", spec_.name, name);
      continue;
    }
    for (blame::Straggler& each : late) each.group_name = name;
    MUSTER_LOG(kWarning, "engine", "job {}: {} (`muster hang{} --job {}`)", spec_.name,
               blame::sentence_of(late), shm::endpoint_option(spec_.endpoint), spec_.name);
  }
}

}  // namespace muster::engine
