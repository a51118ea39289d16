// The engine's duty cycle, and what the graph asks of it.
#include "daemon/engine/engine.hpp"

#include "api/base/fault_point.hpp"
#include "api/base/log.hpp"

namespace muster::engine {
namespace {

constexpr Nanos kTickPeriod = std::chrono::milliseconds(10);

}  // namespace

std::size_t Engine::do_work() {
  const std::lock_guard lock(baton_);
  if (!executor_ || !health_.ok()) return 0;  // not open yet, or never: open() has failed
  if (std::exchange(armed_, false))
    for (Seat& seat : seats_)
      if (seat.session) seat.session->intake().awake();
  const Instant now = clock_.now();
  turn_ = now;
  baton_.doing("reaping finished steps");
  std::size_t work = executor_->poll([&](const scheduler::Finished& finished) {
    current_ = finished;
    graph_->finished(finished.step_index, now, finished.failure);
  });
  baton_.doing("draining the rings");
  work += drain_rings(now);
  baton_.doing("its timers");
  if (now >= next_tick_) tick(now);
  baton_.doing("waking clients");
  wake_clients();
  return work;
}

std::size_t Engine::drain_rings(Instant now) {
  std::size_t taken = 0;
  for (Seat& seat : seats_)
    if (seat.session) taken += drain_ring(seat, now);
  return taken;
}

std::size_t Engine::drain_ring(Seat& seat, Instant now) {
  if (!seat.offence.empty()) return 0;
  auto drained = seat.session->intake().drain(*graph_, now);
  if (drained) {
    if (*drained == 0) return 0;
    seat.heard_at = now;
    MUSTER_FAULT_POINT("engine.drained");
    return *drained;
  }
  // The conductor takes the session out; until then nothing more is read from it.
  seat.offence = drained.error().message();
  seat.session->publication().counters().add(shm::Counter::kRefusals, 1);
  seat.session->publication().close(Code::kProtocol);
  return 0;
}

void Engine::tick(Instant now) {
  graph_->tick(now);
  note_health(executor_->health(), "waiting for", "what was launched");
  for (Seat& seat : seats_) {
    if (!seat.session) continue;
    seat.session->publication().beat(now);
    seat.session->publication().counters().set(
        shm::Counter::kExposedNs,
        static_cast<std::uint64_t>(graph_->lanes_of(seat.session->options().rank).exposed().count()));
  }
  if (trace_.on() && board_) trace_direct();
  if (tally_->due(now)) {
    look_for_stragglers(now);
    counted_.clear();
    for (const Seat& seat : seats_)
      counted_.push_back({seat.session.get(), seat.session
                                                  ? graph_->lanes_of(seat.session->options().rank).exposed()
                                                  : Nanos(0)});
    tally_->write(counted_, board_ ? &*board_ : nullptr, lateness_, now);
  }
  next_tick_ = now + kTickPeriod;
}

bool Engine::arm() {
  const std::lock_guard lock(baton_);
  armed_ = true;
  // Steps that run need no sentinel: the worker that finishes one takes the next turn itself.
  bool quiet = true;
  for (Seat& seat : seats_) {
    if (!seat.session) continue;
    // Even after one had work: all must be armed or none, and do_work() disarms all.
    const bool sleeps = seat.session->intake().try_sleep();
    // Who waits for room on a full lane brings no work until something else does.
    if (seat.session->intake().blocked()) continue;
    quiet = quiet && sleeps && !seat.session->intake().has_backlog();
  }
  return quiet;
}

void Engine::wait(Nanos bound) {
  doorbells_.wait(bound);
}

void Engine::wake() noexcept {
  doorbells_.ring();
}

// ---- actions -----------------------------------------------------------------------------------

void Engine::launch(std::uint32_t step_index, const scheduler::Step& step) {
  if (const scheduler::CollectiveWork* work = step.parts.front().plan->collective())
    flight_log_.launched(step, graph_->matches().matched(work->group, step.parts.front().lane), turn_);
  const Status device = executor_->launch(step_index, step);
  lateness_.met(step);
  note_health(device, "launching", step.parts.front().plan->label());
}

// A device that is broken as a whole ends the job. Not so one whose workers have gone (kState), for the
// engine itself sends them away while a turn may still launch.
void Engine::note_health(const Status& device, const char* doing, const char* what) {
  if (device.ok() || !health_.ok() || device.code() == Code::kState) return;
  health_ = Status(Code::kDevice, fmt::format("{} {}: {}", doing, what, device.text()));
  MUSTER_LOG(kError, "engine", "job {}: {}; the job ends", spec_.name, health_.message());
  for (Seat& seat : seats_)
    if (seat.session) seat.session->publication().close(Code::kDevice);
}

void Engine::submitted(const scheduler::Request& request) {
  ++seats_[request.rank.value].starts;
  tally_->submitted(request.rank, *request.plan);
  if (!graph_->lanes_of(request.rank).lane(request.lane).stopped()) flight_log_.submitted(request, turn_);
}

void Engine::reached(Rank rank, std::uint32_t lane, std::uint64_t value) {
  seats_[rank.value].session->publication().reached(lane, value);
}

void Engine::stopped(Rank rank, std::uint32_t lane, std::uint64_t from, const scheduler::Cause& cause) {
  Session* session = seats_[rank.value].session.get();
  if (session == nullptr) return;
  session->publication().stopped(lane, from, cause);
}

void Engine::resumed(Rank rank, std::uint32_t lane, std::uint64_t to) {
  seats_[rank.value].session->publication().resumed(lane, to);
}

void Engine::retired(Rank rank, std::uint32_t lane, std::uint64_t value, scheduler::Plan& plan, bool well) {
  Session* session = session_of(plan, rank);
  MUSTER_ASSERT(session != nullptr);
  session->plans().ended(plan);
  tally_->retired(rank, plan, well, well ? current_.end - current_.begin : Nanos(0));
  const Session* const seated = seats_[rank.value].session.get();
  const bool succeeded = seated != nullptr && seated != session;  // the log is its own, and so are the values
  if (const scheduler::CollectiveWork* work = plan.collective(); work != nullptr && !succeeded) {
    const FlightEntry* entry = flight_log_.retired(
        rank, lane, value, well, graph_->matches().matched(work->group, lane), current_.end);
    if (entry != nullptr && well)
      seats_[rank.value].finished = Seat::Finished{work->group, plan.label(), entry->number, current_.end};
  }
  if (well) {
    account(*session, plan, lane, value);
  } else {
    session->publication().counters().add(shm::Counter::kStepsFailed, 1);
  }
}

// A plan outlives its session's seat: the session then lies in the graveyard until the plan's starts have
// ended.
Session* Engine::session_of(const scheduler::Plan& plan, Rank rank) {
  Session* seated = seats_[rank.value].session.get();
  if (seated != nullptr && seated->options().id == plan.owner) return seated;
  for (const auto& session : graveyard_)
    if (session->options().id == plan.owner) return session.get();
  return nullptr;
}

void Engine::account(Session& session, const scheduler::Plan& plan, std::uint32_t lane, std::uint64_t value) {
  const auto busy = static_cast<std::uint64_t>((current_.end - current_.begin).count());
  const scheduler::CollectiveWork* collective = plan.collective();
  shm::CounterWriter& counters = session.publication().counters();
  counters.add(shm::Counter::kStepsCompleted, 1);
  counters.add(collective != nullptr ? shm::Counter::kCommBusyNs : shm::Counter::kComputeBusyNs, busy);
  if (collective != nullptr) counters.add(shm::Counter::kBytesMoved, plan.bytes);
  if (!trace_.on()) return;
  scheduler::TraceEvent event;
  event.begin = current_.begin;
  event.end = current_.end;
  event.label = plan.label();
  event.rank = session.options().rank;
  event.lane = lane;
  event.in_group = collective != nullptr;
  event.group = collective != nullptr ? collective->group.value : 0;
  event.value = value;
  event.bytes = plan.bytes;
  trace_.add(event);
}

void Engine::wake_clients() {
  for (Seat& seat : seats_)
    if (seat.session && seat.session->publication().take_news()) seat.session->publication().wake_client();
}

}  // namespace muster::engine
