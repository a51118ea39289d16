#include "daemon/supervisor/jobs/running_jobs.hpp"

#include "api/base/log.hpp"
#include "api/shm/endpoint.hpp"
#include "daemon/supervisor/base/kept_names.hpp"
#include "daemon/supervisor/base/said.hpp"

#include <utility>

#include <unistd.h>

namespace muster::supervisor {
namespace {

using control::Json;
using control::Packet;

constexpr Nanos kAskCountersAgain = std::chrono::seconds(1);

constexpr Shares::Words kSessionsOfAJob{"sessions", "limits.sessions_max", "limits.sessions_per_user_max",
                                        "start fewer ranks"};

// A container's root, or its user of the daemon's number, is no such user of this node.
EngineProcess::User engine_user(const control::Identity& owner, std::uint32_t gid, const Options& options) {
  const bool ordinary = owner.is_home() || (owner.uid != 0 && owner.uid != geteuid());
  return ordinary ? EngineProcess::User{owner.uid, gid} : options.engine_user;
}

}  // namespace

// An engine makes memory for every rank before the first one comes. Ranks that can never all attach do not
// start.
Status check_size(const control::JobSpec& spec, const Options& options) {
  const std::uint32_t ranks = spec.world.local_count();
  if (ranks > options.ranks_per_job_max)
    return failure(
        Code::kNoResource,
        "job {} is of {} ranks, {} are the limit (limits.ranks_per_job_max); start fewer or raise it",
        spec.name, ranks, options.ranks_per_job_max);
  return session_shares(options).fits(spec.owner.account, ranks, kSessionsOfAJob);
}

RunningJobs::RunningJobs(control::Loop& loop, JobTable& table, JobMemory& memory, DescriptorStore& store,
                         control::NodeCostBook& costs, const Options& options, Events events)
    : loop_(loop),
      table_(table),
      memory_(memory),
      store_(store),
      options_(options),
      costs_(costs),
      events_(std::move(events)) {}

EngineProcess::Options RunningJobs::engine_options(const control::JobSpec& spec, std::uint32_t gid) {
  const std::string name = spec.id();
  EngineProcess::Options engine;
  engine.program = options_.engine_program;
  engine.user = engine_user(spec.owner, gid, options_);
  engine.on_event = [this, name](const Json& event) { on_event(name, event); };
  // Posted, because the engine's own callback is still on the stack.
  engine.on_end = [this, name](const std::string& how) {
    loop_.post([this, name, how] { on_end(name, how); });
  };
  return engine;
}

// The state is saved last, so what it names can be found; an engine that it does not name is ended.
Status RunningJobs::start(control::JobSpec spec, Birth birth, OnReady on_ready) {
  if (closed_) return failure(Code::kState, kShuttingDown);
  if (birth.held_epoch == 0) MUSTER_RETURN_IF_ERROR(events_.reserved(spec.id()));
  MUSTER_RETURN_IF_ERROR(check_size(spec, options_));
  spec.epoch = birth.held_epoch != 0 ? birth.held_epoch : draw_epoch(options_);
  spec.costs = costs_.get();
  MUSTER_ASSIGN_OR_RETURN(const Job* entry, table_.create(spec));
  const std::string name = entry->spec.id();
  Result<std::unique_ptr<EngineProcess>> engine;
  if (const Status memory = memory_.enter(spec.owner.account, spec.epoch); !memory.ok()) {
    engine = fail(memory);
  } else {
    engine = EngineProcess::spawn(loop_, engine_options(spec, birth.gid));
  }
  if (!engine) {
    memory_.leave(spec.owner.account, spec.epoch);
    table_.erase(name);
    return engine.error();
  }
  RunningJob& job = jobs_[name];
  job.engine = *std::move(engine);
  const Connections::Id owner = birth.owner;
  job.held = birth.held_epoch != 0;
  job.birth = std::move(birth);
  if (on_ready) job.on_ready.push_back(std::move(on_ready));
  memory_.refresh();
  store_.keep(channel_name(spec.epoch), job.engine->channel());
  store_.keep(pidfd_name(spec.epoch), job.engine->pidfd());
  if (const auto& place = spec.owner.handles) {
    store_.keep(pid_namespace_name(spec.epoch), place->pid_namespace);
    store_.keep(user_namespace_name(spec.epoch), place->user_namespace);
  }
  if (owner != 0) events_.owned(owner);
  events_.save();
  // Last: if the engine is gone already, the answer comes at once, and the job's owner may leave with it.
  ask_to_create(name);
  events_.changed();
  return {};
}

void RunningJobs::adopt(const SavedJob& saved, KeptEngine engine) {
  const std::uint64_t epoch = saved.spec.epoch;
  const std::string name = saved.spec.id();
  control::JobSpec spec = saved.spec;
  if (const auto& place = engine.place;
      place && place->pid_namespace.valid() && place->user_namespace.valid()) {
    store_.know(pid_namespace_name(epoch), place->pid_namespace);
    store_.know(user_namespace_name(epoch), place->user_namespace);
    spec.owner.handles = place;
  }
  if (const auto entry = table_.adopt(spec, saved.tokens))  // a state names no job twice
    for (const SavedJob::Origin& origin : saved.origins)
      if (spec.world.is_local(Rank(origin.rank))) {
        RankOrigin& of_rank = (*entry)->claims[Rank(origin.rank)].origin;
        of_rank.seen.slurm_job = origin.seen;
        of_rank.said.slurm_job = origin.said;
      }
  RunningJob& job = jobs_[name];
  job.birth = {.gid = saved.gid, .owner = saved.owner, .made = saved.made};
  job.held = saved.held;
  job.later = saved.later;
  job.spec_later = saved.spec_later;
  job.ending = saved.ending;  // the state is saved before the engine is asked to stop
  job.counters = std::move(engine.counters);
  EngineProcess::Options options = engine_options(saved.spec, saved.gid);
  options.first_serial = static_cast<std::uint32_t>(options_.random_word());
  job.engine = EngineProcess::adopt(loop_, std::move(options), saved.engine_pid, std::move(engine.channel),
                                    std::move(engine.pidfd));
  store_.know(channel_name(epoch), job.engine->channel());
  store_.know(pidfd_name(epoch), job.engine->pidfd());
  if (job.counters.valid()) store_.know(counters_name(epoch), job.counters);
}

void RunningJobs::begin_anew(const std::string& name) {
  MUSTER_LOG(kInfo, "supervisor", "job {} was only begun; it is made now", name);
  table_.starting(name);
  ask_to_create(name);
}

void RunningJobs::taken_over(const std::string& name) {
  if (!jobs_.at(name).counters.valid()) ask_counters(name, table_.find(name)->spec.epoch);
  report_ready(name, {});
  watch_idle(name);
  events_.changed();
}

void RunningJobs::ask_to_create(const std::string& name) {
  const control::JobSpec& spec = table_.find(name)->spec;
  const auto memory = memory_.place_of(spec.owner.account, spec.epoch);
  Json command{{"command", "create"}, {"spec", control::to_json(spec)}};
  if (memory) command["memory_slot"] = memory->slot;
  const int page = memory ? memory->page : -1;
  jobs_.at(name).engine->ask(command, std::span(&page, memory ? 1 : 0),
                             [this, name](Result<Packet> answer) { on_created(name, std::move(answer)); });
}

void RunningJobs::on_created(const std::string& name, Result<Packet> answer) {
  const auto it = jobs_.find(name);
  if (it == jobs_.end()) return;
  Status status = answer ? Status() : answer.error();
  HeldEngine held;
  if (answer) {
    const auto result = control::result_of(*answer);
    auto address = result ? control::address_in(*result) : fail(result.error());
    if (address)
      held = {*std::move(address), said_text(*result, "hash")};
    else
      status = address.error();
    if (!answer->descriptors.empty()) {
      it->second.counters = std::move(answer->descriptors.front());
      store_.keep(counters_name(table_.find(name)->spec.epoch), it->second.counters);
    }
  }
  status = unless_ending(name, std::move(status));
  if (const OnHeld on_held = std::exchange(it->second.birth.on_held, nullptr)) {
    if (status.ok()) return on_held(held);  // ranks wait until commit()
    on_held(fail(status));
  }
  if (status.ok()) table_.ready(name);
  report_ready(name, status);
  // A living engine without a job is useless, and would keep the name and a place.
  const bool died = !answer && answer.error().code() == Code::kDaemonLost;
  if (!status.ok() && !died) {
    table_.ending(name);
    it->second.engine->kill();
  }
  watch_idle(name);
  events_.changed();
}

void RunningJobs::commit(const std::string& name) {
  jobs_.at(name).held = false;
  table_.ready(name);
  events_.save();
  report_ready(name, {});
  watch_idle(name);
  events_.changed();
}

// The engine has answered, or never will.
void RunningJobs::report_ready(const std::string& name, const Status& status) {
  for (const OnReady& on_ready : std::exchange(jobs_.at(name).on_ready, {})) on_ready(status);
  events_.ready(name, status);
}

void RunningJobs::on_event(const std::string& name, const Json& event) {
  const auto kind = event.find("event");
  if (kind == event.end() || !kind->is_string()) return;
  if (*kind == "failed") {
    MUSTER_LOG(kError, "supervisor", "job {} failed: {}", name,
               event.value("error", Json("no reason")).dump(-1, ' ', false, Json::error_handler_t::replace));
    return;
  }
  if (*kind == "connected" || *kind == "lost") {
    const auto number = [&](const char* field) {
      return static_cast<std::uint32_t>(said_number(event, field));
    };
    Status status = control::status_of(event);
    if (*kind == "lost" && status.ok()) status = failure(Code::kPeerLost, "its engine does not say why");
    return events_.heard(name, {NodeIndex(number("node")), number("generation"), std::move(status)});
  }
  if (*kind == "short_of_memory" && event.contains("bytes"))
    return events_.short_of_memory(name, said_number(event, "bytes"));
  const auto rank = event.find("rank");
  if (*kind != "detached" || rank == event.end() || !rank->is_number_unsigned()) return;
  table_.release(name, Rank(rank->get<std::uint32_t>()));
  watch_idle(name);
  events_.changed();
}

Status RunningJobs::unless_ending(const std::string& name, Status status) const {
  const Job* entry = table_.find(name);
  if (entry == nullptr || entry->state != Job::State::kEnding) return status;
  return failure(Code::kJobEnded, "job {} ends: {}", name, jobs_.at(name).ending);
}

void RunningJobs::on_end(const std::string& name, const std::string& how) {
  if (!jobs_.contains(name)) return;
  const World& world = table_.find(name)->spec.world;
  const std::string where =
      world.nodes().size() > 1 ? fmt::format(" on node {}", world.name_of(world.here())) : "";
  const Status why =
      unless_ending(name, failure(Code::kDaemonLost, "job {}: its engine{} is gone: {}", name, where, how));
  if (why.code() != Code::kJobEnded)
    MUSTER_LOG(kError, "supervisor", "job {} is gone: its engine ended early, {}", name, how);
  const auto node = jobs_.extract(name);
  const RunningJob& job = node.mapped();
  loop_.unwatch(job.end_timer);
  loop_.unwatch(job.linger);
  const control::JobSpec spec = table_.find(name)->spec;
  for (const std::string& kept : {channel_name(spec.epoch), pidfd_name(spec.epoch), counters_name(spec.epoch),
                                  pid_namespace_name(spec.epoch), user_namespace_name(spec.epoch)})
    store_.forget(kept);
  memory_.leave(spec.owner.account, spec.epoch);
  table_.erase(name);
  events_.save();
  if (job.birth.owner != 0) events_.disowned(job.birth.owner);
  // The creator of a job whose engine died during the takeover still waits.
  for (const OnReady& on_ready : job.on_ready) on_ready(why);
  if (job.birth.on_held) job.birth.on_held(fail(why));
  events_.gone(name, why, job.reaped);
  events_.changed();
}

void RunningJobs::end(const std::string& name, const std::string& why, Nanos time) {
  const auto it = jobs_.find(name);
  if (it == jobs_.end()) return;
  RunningJob& job = it->second;
  const Job& entry = *table_.find(name);
  if (entry.state == Job::State::kEnding && time >= kEngineEndTime) return;
  if (entry.state != Job::State::kEnding) {
    MUSTER_LOG(kInfo, "supervisor", "job {} ends: {}", name, why);
    table_.ending(name);
    job.ending = why;
    // A job that somebody has asked for is not made again for ranks that come too late.
    job.reaped = job.idle && (!entry.spec.temporary() || entry.spec.gathered);
    events_.ending(name, unless_ending(name, {}));
    events_.save();
    job.engine->stop(why);
  }
  loop_.unwatch(job.end_timer);
  job.end_timer = loop_.after(time, [this, name] { jobs_.at(name).engine->kill(); });
}

void RunningJobs::end_all(const std::string& why, Nanos time, Connections::Id owner) {
  std::vector<std::string> names;
  for (const auto& [name, job] : jobs_)
    if (owner == 0 || job.birth.owner == owner) names.push_back(name);
  for (const std::string& name : names) end(name, why, time);
}

void RunningJobs::watch_idle(const std::string& name) {
  const auto it = jobs_.find(name);
  if (it == jobs_.end() || !it->second.birth.made) return;
  RunningJob& job = it->second;
  const Job& entry = *table_.find(name);
  const bool empty = entry.state == Job::State::kReady && entry.held() == 0;
  if (!empty) {
    loop_.unwatch(std::exchange(job.linger, 0));
    job.idle_since = 0;
    const bool gave_way = std::exchange(job.gives_way, false);
    if (std::exchange(job.idle, false)) events_.idle(name, Idle::kNo);
    if (gave_way) events_.stays();
    return;
  }
  if (job.linger != 0 || job.idle) return;
  // A temporary job that its ranks have not gathered does not count as idle: its requester ends it.
  if (!entry.spec.temporary() || entry.spec.gathered) job.idle_since = ++idles_;
  const std::string why = fmt::format("the last rank of job {} has left", name);
  if (std::exchange(job.hurried, false)) return give_way(name, why, Idle::kInHaste);
  job.linger = loop_.after(options_.made_job_linger, [this, name, why] { give_way(name, why, Idle::kYes); });
}

void RunningJobs::give_way(const std::string& name, const std::string& why, Idle how) {
  RunningJob& left = jobs_.at(name);
  if (table_.find(name)->held() != 0) {
    left.hurried = true;
    return;
  }
  loop_.unwatch(std::exchange(left.linger, 0));
  left.idle_since = 0;
  left.gives_way = left.gives_way || how == Idle::kInHaste;
  if (std::exchange(left.idle, true)) return;
  if (table_.find(name)->spec.world.nodes().size() > 1) return events_.idle(name, how);
  end(name, why);
}

void RunningJobs::put_off(const std::string& name) {
  const auto it = jobs_.find(name);
  if (it != jobs_.end() && std::exchange(it->second.gives_way, false)) events_.stays();
}

void RunningJobs::hold_ranks(const std::string& name, bool held) {
  const auto it = jobs_.find(name);
  if (it == jobs_.end() || table_.find(name)->state == Job::State::kEnding) return;
  it->second.reaped = held;
  if (held) return;
  report_ready(name, {});
  put_off(name);
}

void RunningJobs::ask(const std::string& name, const Json& command, std::span<const int> descriptors,
                      EngineProcess::Answered answered) {
  jobs_.at(name).engine->ask(command, descriptors, std::move(answered));
}

Status RunningJobs::await_ready(const std::string& name, OnReady on_ready) {
  std::vector<OnReady>& waiting = jobs_.at(name).on_ready;
  if (waiting.size() >= kQuestionsMax)
    return failure(
        Code::kBusy,
        "{} questions wait for the engine of job {}, the limit; ask again when it is ready (`muster "
        "jobs{}`)",
        kQuestionsMax, name, shm::endpoint_option(options_.job_defaults.endpoint));
  waiting.push_back(std::move(on_ready));
  return {};
}

// Repeated until the engine answers: the predecessor was killed before it had the counters.
void RunningJobs::ask_counters(const std::string& name, std::uint64_t epoch) {
  if (table_.find(name, epoch) == nullptr) return;
  jobs_.at(name).engine->ask(Json{{"command", "counters"}}, {}, [this, name, epoch](Result<Packet> answer) {
    const bool gone = table_.find(name, epoch) == nullptr;
    if (gone || (!answer && answer.error().code() == Code::kDaemonLost)) return;
    if (answer && !answer->descriptors.empty()) {
      shm::Descriptor& counters = jobs_.at(name).counters;
      counters = std::move(answer->descriptors.front());
      return store_.keep(counters_name(epoch), counters);
    }
    loop_.after(kAskCountersAgain, [this, name, epoch] { ask_counters(name, epoch); });
  });
}

RunningJobs::Facts RunningJobs::facts(const std::string& name) const {
  const auto it = jobs_.find(name);
  if (it == jobs_.end()) return {};
  const RunningJob& job = it->second;
  Facts facts{job.engine->pid(), job.counters.get(), job.birth.owner, job.reaped,
              job.idle_since,    job.birth.made,     job.birth.gid};
  facts.gives_way = job.gives_way && table_.find(name)->state != Job::State::kEnding;
  return facts;
}

std::vector<SavedJob> RunningJobs::saved() const {
  std::vector<SavedJob> all;
  for (const auto& [name, job] : jobs_) {
    const Job& entry = *table_.find(name);
    SavedJob saved{entry.spec,
                   job.birth.gid,
                   job.engine->pid(),
                   job.birth.owner,
                   job.birth.made,
                   job.held,
                   job.ending,
                   {},
                   {},
                   job.later,
                   job.spec_later};
    for (const Rank rank : entry.spec.world.locals()) {
      const Job::Claim& claim = entry.claims[rank];
      if (!claim.token.empty()) saved.tokens.push_back({rank.value, claim.token_at, claim.token});
      const RankOrigin& origin = claim.origin;
      if (!origin.seen.slurm_job.empty() || !origin.said.slurm_job.empty())
        saved.origins.push_back({rank.value, origin.seen.slurm_job, origin.said.slurm_job});
    }
    all.push_back(std::move(saved));
  }
  return all;
}

}  // namespace muster::supervisor
