// The supervisor's jobs: start, end, drain, and what an engine tells of itself.
#include "daemon/supervisor/supervisor.hpp"

#include "api/base/log.hpp"

#include <algorithm>
#include <chrono>

namespace muster::supervisor {
namespace {

using control::Json;
using control::Packet;

constexpr Nanos kEngineEndTime = std::chrono::seconds(10);  // from "stop" to SIGKILL
constexpr Nanos kPlaceTime = kEngineEndTime + std::chrono::seconds(1);
constexpr Nanos kStopAgain = std::chrono::milliseconds(20);
constexpr Nanos kMemoryPeriod = std::chrono::seconds(1);
constexpr Nanos kDrainPoll = std::chrono::milliseconds(20);

constexpr Shares::Words kSeats{"sessions", "limits.sessions_max", "limits.sessions_per_user_max",
                               "start fewer ranks"};

}  // namespace

EngineProcess::Options Supervisor::engine_options(const control::JobSpec& spec, std::uint32_t gid) {
  const std::string name = spec.name;
  EngineProcess::Options engine;
  engine.program = options_.engine_program;
  engine.uid = spec.owner_uid;
  engine.gid = gid;
  engine.on_event = [this, name](const Json& event) { on_engine_event(name, event); };
  // Later, because the engine's own callback is still on the stack.
  engine.on_end = [this, name](const std::string& how) {
    loop_.post([this, name, how] { on_engine_end(name, how); });
  };
  return engine;
}

Status Supervisor::start_job(control::JobSpec spec, Birth birth,
                             std::function<void(const Status&)> on_ready) {
  if (draining_) return failure(Code::kState, kShuttingDown);
  // An engine makes memory for every rank before the first comes, so a job's size is asked here.
  if (spec.world > options_.ranks_per_job_max)
    return failure(
        Code::kNoResource,
        "job {} is of {} ranks, {} are the limit (limits.ranks_per_job_max); start fewer or raise it",
        spec.name, spec.world, options_.ranks_per_job_max);
  // Or ranks would be started that can never all attach.
  MUSTER_RETURN_IF_ERROR(sessions_by_user().fits(spec.owner_uid, spec.world, kSeats));
  spec.epoch = std::max<std::uint64_t>(1, options_.random_word() & Handle::kGenerationMask);
  MUSTER_ASSIGN_OR_RETURN(const Job* job, table_.create(spec));
  const std::string name = job->spec.name;
  auto process = memory_.enter(spec.owner_uid, spec.epoch).and_then([&](bool is_new) {
    // First: an engine never has a page that a successor would not find.
    if (is_new) store_.keep(memory_name(spec.owner_uid), memory_.page(spec.owner_uid)->descriptor());
    return EngineProcess::spawn(loop_, engine_options(spec, birth.gid));
  });
  if (!process) {
    forget_memory(spec);
    table_.erase(name);
    return process.error();
  }
  RunningJob& running = running_[name];
  running.engine = *std::move(process);
  running.gid = birth.gid;
  running.owner = birth.owner;
  running.made = birth.made;
  running.on_ready.push_back(std::move(on_ready));
  share_memory();
  // The state last: what it names is there to be found, and an engine that it does not name is ended.
  store_.keep(channel_name(spec.epoch), running.engine->channel());
  store_.keep(pidfd_name(spec.epoch), running.engine->pidfd());
  if (birth.owner != 0) {
    Connection& connection = connections_.at(birth.owner);
    if (connection.jobs.empty()) store_.keep(owner_name(birth.owner), connection.socket);
    connection.jobs.push_back(name);
  }
  save();
  // Last: an engine that is gone already is told of at once, and with the answer its owner may go.
  ask_to_create(name);
  publish_status();
  return {};
}

void Supervisor::ask_to_create(const std::string& name) {
  const control::JobSpec& spec = table_.find(name)->spec;
  const shm::MemoryPage* page = memory_.page(spec.owner_uid);
  const auto slot = page != nullptr ? page->slot_of(spec.epoch) : std::nullopt;
  Json command{{"command", "create"}, {"spec", control::to_json(spec)}};
  if (slot) command["memory_slot"] = *slot;
  const int descriptor = slot ? page->descriptor().get() : -1;
  running_.at(name).engine->ask(
      command, std::span(&descriptor, slot ? 1 : 0),
      [this, name](Result<Packet> answer) { on_engine_ready(name, std::move(answer)); });
}

void Supervisor::on_engine_ready(const std::string& name, Result<Packet> answer) {
  const auto it = running_.find(name);
  if (it == running_.end()) return;
  Status status = answer ? Status() : answer.error();
  if (answer) {
    const auto result = control::result_of(*answer);
    if (!result) status = result.error();
    if (!answer->descriptors.empty()) {
      it->second.counters = std::move(answer->descriptors.front());
      store_.keep(counters_name(table_.find(name)->spec.epoch), it->second.counters);
    }
  }
  status = unless_ended(name, std::move(status));
  if (status.ok()) table_.ready(name);
  auto callbacks = std::move(it->second.on_ready);
  auto waiting = std::move(it->second.waiting);
  it->second.on_ready.clear();
  it->second.waiting.clear();
  for (const auto& callback : callbacks) callback(status);
  for (WaitingClient& client : waiting) {
    if (status.ok()) {
      hand_over(std::move(client));
    } else {
      refuse(client, status);
    }
  }
  // An engine that lives but has made no job is of no use, and would keep the name and a place.
  const bool died = !answer && answer.error().code() == Code::kDaemonLost;
  if (!status.ok() && !died) {
    table_.ending(name);
    it->second.engine->kill();
  }
  end_if_deserted(name);
}

void Supervisor::on_engine_event(const std::string& name, const Json& event) {
  const auto kind = event.find("event");
  if (kind == event.end() || !kind->is_string()) return;
  if (*kind == "failed") {
    MUSTER_LOG(kError, "supervisor", "job {} failed: {}", name,
               event.value("error", Json("no reason")).dump(-1, ' ', false, Json::error_handler_t::replace));
    return;
  }
  const auto rank = event.find("rank");
  if (*kind != "detached" || rank == event.end() || !rank->is_number_unsigned()) return;
  table_.release(name, Rank(rank->get<std::uint32_t>()));
  end_if_deserted(name);
  publish_status();
  check_drained();
}

// What those hear who wait for a job whose engine is gone, or going: an end on purpose is no loss.
Status Supervisor::unless_ended(const std::string& name, Status status) {
  const Job* job = table_.find(name);
  if (job == nullptr || job->state != JobState::kEnding) return status;
  return failure(Code::kJobEnded, "job {} ends: {}", name, running_.at(name).ending);
}

void Supervisor::on_engine_end(const std::string& name, const std::string& how) {
  const auto it = running_.find(name);
  if (it == running_.end()) return;
  const Job* job = table_.find(name);
  const Status gone =
      unless_ended(name, failure(Code::kDaemonLost, "job {}: its engine is gone: {}", name, how));
  if (gone.code() != Code::kJobEnded)
    MUSTER_LOG(kError, "supervisor", "job {} is gone: its engine ended early, {}", name, how);
  loop_.unwatch(it->second.end_timer);
  loop_.unwatch(it->second.linger);
  loop_.unwatch(it->second.attach_again);
  auto next = it->second.deserted ? std::move(it->second.waiting) : std::vector<WaitingClient>();
  if (it->second.deserted) it->second.waiting.clear();
  for (WaitingClient& client : it->second.waiting) refuse(client, gone);
  if (const auto owner = connections_.find(it->second.owner); owner != connections_.end()) {
    std::erase(owner->second.jobs, name);
    if (owner->second.jobs.empty()) store_.forget(owner_name(owner->first));
    time_out_if_idle(owner->first);
  }
  if (job != nullptr) {
    store_.forget(channel_name(job->spec.epoch));
    store_.forget(pidfd_name(job->spec.epoch));
    store_.forget(counters_name(job->spec.epoch));
    forget_memory(job->spec);
  }
  // The creator of a job whose engine died while it was taken over still waits.
  const auto on_ready = std::move(it->second.on_ready);
  running_.erase(it);
  table_.erase(name);
  save();
  conclude_takeover();
  for (const auto& callback : on_ready) callback(gone);
  fill_places();
  for (WaitingClient& client : next) admit(std::move(client));  // of a new job by that name
  publish_status();
  check_drained();
}

void Supervisor::forget_memory(const control::JobSpec& spec) {
  if (memory_.leave(spec.owner_uid, spec.epoch)) store_.forget(memory_name(spec.owner_uid));
  share_memory();
}

// Now, and once a second: engines take and give back without a word.
void Supervisor::share_memory() {
  memory_.refresh();
  if (memory_timer_ != 0 || running_.empty()) return;
  memory_timer_ = loop_.after(kMemoryPeriod, [this] {
    memory_timer_ = 0;
    share_memory();
  });
}

// Whether a job of that user may wait for the place of one that is ending.
bool Supervisor::may_wait_for_place(std::uint32_t uid) {
  if (!table_.place_is_coming(uid)) return false;
  forget_leavers();
  return retrying_.has_room(uid);
}

void Supervisor::wait_for_place(Applicant applicant) {
  retrying_.enter(applicant.uid);
  applicant.until = clock_.now() + kPlaceTime;
  applicants_.push_back(std::move(applicant));
  watch_places();
}

// The first in the queue has waited longest.
void Supervisor::watch_places() {
  if (places_timer_ != 0 || applicants_.empty()) return;
  const Nanos left = applicants_.front().until - clock_.now();
  places_timer_ = loop_.after(std::max(left, Nanos(0)), [this] {
    places_timer_ = 0;
    fill_places();
    watch_places();
  });
}

// First come, first served, but ranks of a job that one of them has made need no place. Whoever has waited
// long enough, or for a place that does not come any more, hears that there is none.
void Supervisor::fill_places() {
  for (Applicant& next : std::exchange(applicants_, {})) {
    const bool waits =
        table_.place_is_coming(next.uid) && table_.find(next.job) == nullptr && clock_.now() < next.until;
    if (waits) {
      applicants_.push_back(std::move(next));
      continue;
    }
    retrying_.leave(next.uid);
    next.apply();
  }
}

// Null if there is none, or another by that name.
Supervisor::RunningJob* Supervisor::running_job(const std::string& name, std::uint64_t epoch) {
  const Job* job = table_.find(name);
  return job == nullptr || job->spec.epoch != epoch ? nullptr : &running_.at(name);
}

// Asks first; an engine that does not end by itself is killed.
void Supervisor::end_job(const std::string& name, const std::string& why) {
  const auto it = running_.find(name);
  const Job* job = table_.find(name);
  if (it == running_.end() || job == nullptr || job->state == JobState::kEnding) return;
  MUSTER_LOG(kInfo, "supervisor", "job {} ends: {}", name, why);
  table_.ending(name);
  it->second.ending = why;
  turn_away(name);
  save();
  ask_to_stop(name, job->spec.epoch);
  it->second.end_timer = loop_.after(kEngineEndTime, [this, name] {
    if (const auto job_it = running_.find(name); job_it != running_.end()) job_it->second.engine->kill();
  });
}

// Again while its channel is full: an engine that was not told is killed with all that it holds.
void Supervisor::ask_to_stop(const std::string& name, std::uint64_t epoch) {
  RunningJob* running = running_job(name, epoch);
  if (running == nullptr) return;
  running->engine->ask(Json{{"command", "stop"}, {"text", running->ending}}, {},
                       [this, name, epoch](const Result<Packet>& answer) {
                         if (answer || answer.error().code() == Code::kDaemonLost) return;
                         loop_.after(kStopAgain, [this, name, epoch] { ask_to_stop(name, epoch); });
                       });
}

// A job that a Hello has made is nobody's to end: it goes some time after its last rank.
void Supervisor::end_if_deserted(const std::string& name) {
  const auto it = running_.find(name);
  const Job* job = table_.find(name);
  if (it == running_.end() || job == nullptr || !it->second.made) return;
  const bool deserted =
      job->state == JobState::kReady && job->held() == 0 && it->second.waiting.empty() && !draining_;
  if (!deserted) return loop_.unwatch(std::exchange(it->second.linger, 0));
  if (it->second.linger != 0) return;
  it->second.linger = loop_.after(options_.made_job_linger, [this, name] {
    RunningJob& running = running_.at(name);
    running.linger = 0;
    running.deserted = true;
    end_job(name, fmt::format("the last rank of job {} has left", name));
  });
}

// First call: no more guests, and the ranks may finish within drain_timeout. Second call, or nobody to wait
// for: end now.
void Supervisor::drain(bool wait_for_ranks) {
  if (!draining_) {
    MUSTER_LOG(kInfo, "supervisor", "shutting down: {} sessions are attached", sessions());
    tell("STOPPING=1");
    draining_ = true;
    publish_status();
  }
  if (wait_for_ranks && sessions() + adopting() > 0) {
    const double seconds = std::chrono::duration<double>(options_.drain_timeout).count();
    MUSTER_LOG(kInfo, "supervisor", "they have {:g} s to leave (liveness.drain_timeout)", seconds);
    loop_.after(options_.drain_timeout, [this] { drain(false); });
    return;
  }
  std::vector<std::string> names;
  for (const auto& [name, running] : running_) names.push_back(name);
  for (const std::string& name : names) end_job(name, "the daemon is shutting down");
  check_drained();
}

void Supervisor::check_drained() {
  if (!draining_) return;
  if (running_.empty()) {
    // A moment for the answer to whoever asked for the shutdown.
    loop_.after(kDrainPoll, [this] { loop_.stop(); });
    return;
  }
  if (sessions() + adopting() > 0) return;
  std::vector<std::string> names;
  for (const auto& [name, running] : running_) names.push_back(name);
  for (const std::string& name : names) end_job(name, "the daemon is shutting down");
}

}  // namespace muster::supervisor
