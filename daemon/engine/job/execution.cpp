#include "daemon/engine/job/execution.hpp"

#include "api/base/assert.hpp"
#include "api/base/log.hpp"

namespace muster::engine {

std::size_t Execution::reap(Instant now) {
  turn_ = now;
  return executor_.poll([&](const scheduler::Executor::Finished& finished) {
    current_ = finished;
    graph_.finished(finished.step_index, now, finished.failure);
  });
}

void Execution::launch(std::uint32_t step_index, const scheduler::Step& step) {
  metrics_.launched(step, turn_);
  const Status device = executor_.launch(step_index, step);
  metrics_.met(step);
  note_health(device, "launching", step.parts.front().plan->label());
}

void Execution::look_at_devices() {
  note_health(executor_.health(), "waiting for", "what was launched");
}

// A device that is broken as a whole ends the job. kState does not: the engine itself halts the workers while
// a turn may still launch.
void Execution::note_health(const Status& device, const char* doing, const char* what) {
  if (device.ok() || !health_.ok() || device.code() == Code::kState) return;
  health_ = Status(Code::kDevice, fmt::format("{} {}: {}", doing, what, device.text()));
  MUSTER_LOG(kError, "engine", "job {}: {}; the job ends", spec_.name, health_.message());
  slots_.close(Code::kDevice, "");
}

void Execution::submitted(const scheduler::Request& request) {
  ++slots_.of(request.rank).starts;
  metrics_.submitted(request, turn_);
}

void Execution::overdue(Rank rank, std::uint32_t lane, scheduler::Cause& cause) {
  reports_.overdue(rank, lane, turn_, cause);
}

void Execution::reached(Rank rank, std::uint32_t lane, std::uint64_t value, const transport::MatchKey& key) {
  slots_.of(rank).session->publication().reached(lane, value, key);
}

void Execution::stopped(Rank rank, std::uint32_t lane, std::uint64_t from, const scheduler::Cause& cause) {
  if (Session* session = slots_.of(rank).session.get()) session->publication().stopped(lane, from, cause);
}

void Execution::resumed(Rank rank, std::uint32_t lane, std::uint64_t to) {
  slots_.of(rank).session->publication().resumed(lane, to);
}

void Execution::quarantined(Rank rank, std::uint32_t lane, std::uint32_t starts) {
  if (Session* session = slots_.of(rank).session.get()) session->publication().quarantined(lane, starts);
}

void Execution::retired(Rank rank, std::uint32_t lane, std::uint64_t value, scheduler::Plan& plan,
                        bool well) {
  Session* session = slots_.owner_of(plan, rank);
  MUSTER_ASSERT(session != nullptr);
  session->plans().ended(plan);
  const Session* const present = slots_.of(rank).session.get();
  const bool succeeded = present != nullptr && present != session;
  metrics_.retired({rank, lane, value, well, !succeeded}, plan, current_);
  if (well) {
    account(*session, plan, lane, value);
  } else {
    session->publication().counters().add(shm::Counter::kStepsFailed, 1);
  }
}

void Execution::account(Session& session, const scheduler::Plan& plan, std::uint32_t lane,
                        std::uint64_t value) {
  const auto busy = static_cast<std::uint64_t>((current_.end - current_.begin).count());
  const scheduler::CollectiveWork* collective = plan.collective();
  shm::CounterWriter& counters = session.publication().counters();
  counters.add(shm::Counter::kStepsCompleted, 1);
  counters.add(collective != nullptr ? shm::Counter::kCommBusyNs : shm::Counter::kComputeBusyNs, busy);
  if (collective != nullptr) counters.add(shm::Counter::kBytesMoved, plan.bytes);
  if (!recorder_.on()) return;
  scheduler::Trace::Event event;
  event.begin = current_.begin;
  event.end = current_.end;
  event.label = plan.label();
  event.rank = session.options().rank;
  event.lane = lane;
  event.lane_id = graph_.lanes()[event.rank].id(lane);
  event.in_group = collective != nullptr;
  event.group = collective != nullptr ? collective->group.value : 0;
  event.value = value;
  event.bytes = plan.bytes;
  if (collective != nullptr) event.site = collective->site;
  event.step = step_of(session, lane, value);
  recorder_.add(event);
}

// The start is the oldest of its lane, unless a former client has made it.
std::uint64_t Execution::step_of(const Session& session, std::uint32_t lane, std::uint64_t value) const {
  const Rank rank = session.options().rank;
  if (slots_.of(rank).session.get() != &session) return 0;
  const scheduler::LaneQueue::Start* const oldest = graph_.lanes()[rank].lane(lane).oldest();
  return oldest != nullptr && oldest->request.value == value ? oldest->request.step : 0;
}

}  // namespace muster::engine
