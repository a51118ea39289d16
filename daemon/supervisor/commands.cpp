// What a command line may ask of the supervisor. The table is in daemon/control/README.md.
#include "daemon/control/own_version.hpp"
#include "daemon/supervisor/supervisor.hpp"

#include "api/base/log.hpp"

#include <algorithm>
#include <set>

#include <unistd.h>

namespace muster::supervisor {
namespace {

using control::Json;
using control::Packet;

constexpr Nanos kReportTime = std::chrono::seconds(1);  // that `jobs` waits for engines at most
constexpr std::size_t kRankTextBytes = 32;              // of what was sent for a rank, in a complaint

// No longer than whoever asks has time for.
Nanos report_time(const Json& body) {
  const auto field = body.find("wait_ns");
  if (field == body.end() || !field->is_number_unsigned()) return kReportTime;
  const auto most = static_cast<std::uint64_t>(kReportTime.count());
  return Nanos(static_cast<std::int64_t>(std::min(field->get<std::uint64_t>(), most)));
}

// What a user has, and the most it may have.
Json of_user(std::uint32_t uid, const Shares& jobs, const Shares& sessions, const Shares& memory) {
  return Json{{"uid", uid},
              {"jobs", jobs.of(uid)},
              {"jobs_share", jobs.share(uid)},
              {"sessions", sessions.of(uid)},
              {"sessions_share", sessions.share(uid)},
              {"memory_bytes", memory.of(uid)},
              {"memory_share_bytes", memory.share(uid)}};
}

// For the log, whatever came.
std::string command_of(const Json& body) {
  const auto field = body.find("command");
  return field != body.end() && field->is_string() ? "command " + field->get<std::string>() : "a command";
}

}  // namespace

void Supervisor::execute(ConnectionId id, Packet packet) {
  const std::uint32_t serial = packet.serial;
  const std::string command = command_of(packet.body);
  if (Connection& connection = connections_.at(id); connection.questions >= kQuestionsMax) {
    const Status busy = failure(
        Code::kBusy, "{} questions of this connection wait for an answer, the limit; wait for one of them",
        kQuestionsMax);
    const Status sent =
        control::send_packet(connection.socket, shm::MessageKind::kReply, serial, control::failed(busy));
    if (!sent.ok()) drop(id);
    return;
  }
  const Reply reply = [this, id, serial, command](Json answer, std::span<const int> descriptors) {
    const auto it = connections_.find(id);
    if (it == connections_.end()) return;  // it did not wait for the answer
    if (const Status status = control::status_of(answer); !status.ok())
      log_refusal(refusals_, it->second.peer, command, status);
    const Status sent =
        control::send_packet(it->second.socket, shm::MessageKind::kReply, serial, answer, descriptors);
    if (!sent.ok()) return drop(id);
    if (it->second.questions > 0) --it->second.questions;
    time_out_if_idle(id);
  };
  ++connections_.at(id).questions;
  time_out_if_idle(id);
  try {
    dispatch(id, packet.body.value("command", ""), packet.body, reply);
  } catch (const Json::exception& error) {  // a field of another type than expected
    reply(control::failed(failure(Code::kProtocol, "the command is not well-formed: {}", error.what())), {});
  }
}

void Supervisor::dispatch(ConnectionId id, const std::string& command, const Json& body, Reply reply) {
  if (command == "version") return reply(control::success(version()), {});
  if (command == "status") return reply(control::success(status(id)), {});
  if (command == "jobs") return jobs_report(id, body, reply);
  if (command == "job_create") return job_create(id, body, reply);
  if (command == "job_destroy") return job_destroy(id, body, reply);
  if (command == "token") return token(id, body, reply);
  if (command == "counters") return counters(id, body, reply);
  if (command == "groups" || command == "expect_all" || command == "hang" || command == "flight")
    return forward(id, body, {{"command", command}}, reply);
  if (command == "trace_begin" || command == "trace_end")
    return forward(id, body, {{"command", command}, {"by", body.value("by", "")}}, reply);
  if (command == "absent") return absent(id, body, reply);
  if (command == "upgrade") return upgrade(id, body, reply);
  if (command == "shutdown") {
    const Status allowed = may_govern(id, "shut the daemon down");
    if (!allowed.ok()) return reply(control::failed(allowed), {});
    reply(control::success({{"drain_timeout_ns", options_.drain_timeout.count()}}), {});
    return drain(body.value("drain", true));
  }
  reply(control::failed(failure(Code::kBadArgument, "the daemon ({}) knows no command '{}'",
                                control::own_version(), command)),
        {});
}

Status Supervisor::may_govern(ConnectionId id, const char* what) const {
  const std::uint32_t uid = connections_.at(id).peer.uid;
  if (uid == 0 || uid == geteuid()) return {};
  return failure(Code::kDenied, "only root and user {} may {}", geteuid(), what);
}

// No answer if it succeeds: the connection ends with this program, and the next one tells its version.
void Supervisor::upgrade(ConnectionId id, const Json& body, const Reply& reply) {
  const Status allowed = may_govern(id, "upgrade the daemon");
  if (!allowed.ok()) return reply(control::failed(allowed), {});
  begin_upgrade(body.value("program", ""),
                [reply](const Status& refused) { reply(control::failed(refused), {}); });
}

Json Supervisor::version() const {
  return Json{{"version", control::own_version()},
              {"abi", shm::kAbiVersion},
              {"pid", getpid()},
              {"instance", state_.instance},
              {"program", options_.program}};
}

Json Supervisor::status(ConnectionId id) const {
  const std::uint32_t uid = connections_.at(id).peer.uid;
  Json jobs = Json::array();
  for (const auto& [name, job] : table_.jobs())
    if (JobTable::may_act(job, uid).ok()) jobs.push_back(describe(job));  // as in jobs_report()
  Json result = version();
  result["uptime_ns"] = (clock_.now() - started_).count();
  result["socket"] = entrance_.socket().path();
  result["epoch"] = state_.epoch;
  Json later = Json::array();
  for (const auto& [name, value] : state_.later.items()) later.push_back(name);
  result["state"] = {{"version", state_format().version}, {"read", state_read_}, {"later", std::move(later)}};
  result["takeover_ns"] = takeover_.count();
  result["draining"] = draining_;
  result["sessions"] = sessions();
  result["jobs"] = jobs;
  result["jobs_total"] = table_.jobs().size();  // other users' too
  const Shares sessions = sessions_by_user();
  const Shares memory = memory_.held();
  result["memory_bytes"] = memory.all();
  result["limits"] = {{"jobs_max", options_.jobs_max},
                      {"sessions_max", options_.sessions_max},
                      {"ranks_per_job_max", options_.ranks_per_job_max},
                      {"memory_max", memory.share(0)}};
  // Who governs sees all users.
  std::set<std::uint32_t> users{uid};
  if (memory.governs(uid))
    for (const Shares* shares : {&table_.places(), &sessions, &memory})
      for (const auto& [user, has] : shares->by_user()) users.insert(user);
  result["users"] = Json::array();
  for (const std::uint32_t user : users)
    result["users"].push_back(of_user(user, table_.places(), sessions, memory));
  return result;
}

Json Supervisor::describe(const Job& job) const {
  const auto running = running_.find(job.spec.name);
  return Json{{"name", job.spec.name},
              {"state", state_name(job.state)},
              {"world", job.spec.world},
              {"mesh", job.spec.mesh},
              {"owner_uid", job.spec.owner_uid},
              {"epoch", job.spec.epoch},
              {"claim", job.spec.claim == control::ClaimRule::kToken ? "token" : "owner"},
              {"engine_pid", running == running_.end() ? 0 : running->second.engine->pid()},
              {"attached", job.held()}};
}

Result<Job*> Supervisor::job_for(ConnectionId id, const Json& body) {
  const std::string name = body.value("job", "");
  Job* job = table_.find(name);
  if (job == nullptr) return fail(Code::kNotFound, "no job is named '{}'; `muster jobs` lists them", name);
  MUSTER_RETURN_IF_ERROR(JobTable::may_act(*job, connections_.at(id).peer.uid));
  return job;
}

// Each engine is asked for its ranks. The answer goes out when the last has spoken, or in a while without
// those that are stopped or stuck: one job must not hide the others.
void Supervisor::jobs_report(ConnectionId id, const Json& body, Reply reply) {
  struct Gather {
    Json jobs = Json::array();
    std::size_t open = 1;
    control::Loop::Watch timer = 0;
    Reply reply;  // empty once it was given
    // An engine may keep its word back for ever, and whoever asked may ask again: what waits for it is small.
    void answer() {
      if (const Reply once = std::exchange(reply, nullptr))
        once(control::success({{"jobs", std::move(jobs)}}), {});
    }
  };
  const auto gather = std::make_shared<Gather>();
  gather->reply = std::move(reply);
  gather->timer = loop_.after(report_time(body), [gather] { gather->answer(); });
  const auto close = [this, gather] {
    if (--gather->open > 0) return;
    loop_.unwatch(gather->timer);
    gather->answer();
  };
  const std::uint32_t uid = connections_.at(id).peer.uid;
  for (const auto& [name, job] : table_.jobs()) {
    if (!JobTable::may_act(job, uid).ok()) continue;  // other users' jobs are not shown
    const std::size_t index = gather->jobs.size();
    gather->jobs.push_back(describe(job));
    gather->jobs[index].update({{"ranks", Json::array()}, {"answered", false}});
    ++gather->open;
    const auto hear = [gather, index, close](Result<Packet> answer) {
      if (answer && gather->reply)
        if (const auto result = control::result_of(*answer); result && result->is_object())
          gather->jobs[index].update({{"ranks", result->value("ranks", Json::array())}, {"answered", true}});
      close();
    };
    running_.at(name).engine->ask(Json{{"command", "report"}}, {}, hear);
  }
  close();
}

void Supervisor::job_create(ConnectionId id, const Json& body, Reply reply, Full full) {
  const Connection& connection = connections_.at(id);
  const auto spec =
      control::job_asked_for(body.value("spec", Json::object()), options_.job_defaults, connection.peer.uid);
  if (!spec) return reply(control::failed(spec.error()), {});
  const std::string name = spec->name;
  const ConnectionId owner = body.value("keep", false) ? 0 : id;
  const auto created = [this, id, name, reply](const Status& status) {
    status.ok() ? answer_created(id, name, reply) : reply(control::failed(status), {});
  };
  // Asked again on the same connection: a predecessor began with it, and its answer was lost.
  if (const Job* job = table_.find(name); job != nullptr && owner != 0 && running_.at(name).owner == owner &&
                                          job->spec.world == spec->world && job->spec.mesh == spec->mesh) {
    if (job->state == JobState::kReady) return created({});
    if (job->state != JobState::kEnding) return await_ready(name, created, reply);
  }
  const bool waits = full == Full::kWaits && !draining_ && table_.find(name) == nullptr;
  if (waits && may_wait_for_place(connection.peer.uid)) {
    const auto has_left = [this, id] { return !connections_.contains(id); };
    return wait_for_place({connection.peer.uid, name, has_left, [this, id, body, reply, has_left] {
                             if (!has_left()) job_create(id, body, reply, Full::kRefused);
                           }});
  }
  const Status started = start_job(*spec, {.gid = connection.peer.gid, .owner = owner}, created);
  if (!started.ok()) reply(control::failed(started), {});
}

// Bounded, because whoever asks may leave and ask again on another connection.
void Supervisor::await_ready(const std::string& name, std::function<void(const Status&)> on_ready,
                             const Reply& reply) {
  auto& waiting = running_.at(name).on_ready;
  if (waiting.size() < kQuestionsMax) return waiting.push_back(std::move(on_ready));
  reply(control::failed(failure(Code::kBusy,
                                "{} questions wait for the engine of job {}, the limit; ask again when it "
                                "is ready (`muster jobs`)",
                                kQuestionsMax, name)),
        {});
}

void Supervisor::answer_created(ConnectionId id, const std::string& name, const Reply& reply) {
  const Job& job = *table_.find(name);
  Json result{{"job", name}, {"epoch", job.spec.epoch}};
  if (job.spec.claim == control::ClaimRule::kToken) {
    result["tokens"] = Json::array();
    for (std::uint32_t rank = 0; rank < job.spec.world; ++rank) {
      const std::string text = options_.random_hex();
      static_cast<void>(table_.issue(name, Rank(rank), text));
      result["tokens"].push_back(text);
    }
    save();  // before anybody knows them
  }
  if (connections_.contains(id)) reply(control::success(std::move(result)), {});
}

void Supervisor::job_destroy(ConnectionId id, const Json& body, Reply reply) {
  const auto job = job_for(id, body);
  if (!job) return reply(control::failed(job.error()), {});
  end_job((*job)->spec.name,
          fmt::format("job {} was ended by user {}", (*job)->spec.name, connections_.at(id).peer.uid));
  reply(control::success(Json::object()), {});
}

// A rank that the job has.
Result<Rank> Supervisor::rank_in(const Job& job, const Json& body) {
  const auto field = body.find("rank");
  const bool number = field != body.end() && field->is_number_unsigned();
  if (number && field->get<std::uint64_t>() < job.spec.world) return Rank(field->get<std::uint32_t>());
  const std::string text =
      field == body.end() ? "null" : field->dump(-1, ' ', false, Json::error_handler_t::replace);
  return fail(Code::kBadArgument, "rank {} is not in 0..{} of job {}", text.substr(0, kRankTextBytes),
              job.spec.world - 1, job.spec.name);
}

void Supervisor::absent(ConnectionId id, const Json& body, const Reply& reply) {
  const auto job = job_for(id, body);
  const auto rank = job ? rank_in(**job, body) : Result<Rank>(fail(job.error()));
  if (!rank) return reply(control::failed(rank.error()), {});
  forward(id, body, {{"command", "absent"}, {"rank", rank->value}, {"text", body.at("text")}}, reply);
}

void Supervisor::token(ConnectionId id, const Json& body, Reply reply) {
  if (!connections_.contains(id)) return;  // it did not wait for the engine
  const auto job = job_for(id, body);
  const auto rank = job ? rank_in(**job, body) : Result<Rank>(fail(job.error()));
  if (!rank) return reply(control::failed(rank.error()), {});
  if ((*job)->state == JobState::kAdopting) {
    // A token counts from how often its rank was attached, which only the engine knows.
    const auto again = [this, id, body, reply](const Status& status) {
      status.ok() ? token(id, body, reply) : reply(control::failed(status), {});
    };
    return await_ready((*job)->spec.name, again, reply);
  }
  const std::string text = options_.random_hex();
  const Status issued = table_.issue((*job)->spec.name, *rank, text);
  if (issued.ok()) save();
  reply(issued.ok() ? control::success({{"token", text}}) : control::failed(issued), {});
}

// Without a word to the engine, which may be stuck.
void Supervisor::counters(ConnectionId id, const Json& body, const Reply& reply) {
  const auto job = job_for(id, body);
  if (!job) return reply(control::failed(job.error()), {});
  const std::string& name = (*job)->spec.name;
  const RunningJob& running = running_.at(name);
  if (!running.counters.valid())
    return reply(control::failed(failure(Code::kState, "job {} is still starting; try again", name)), {});
  const int descriptor = running.counters.get();
  reply(control::success({{"job", name}, {"engine_pid", running.engine->pid()}}), std::span(&descriptor, 1));
}

// A question for the job's engine; its answer goes back as it came.
void Supervisor::forward(ConnectionId id, const Json& body, const Json& question, Reply reply) {
  const auto job = job_for(id, body);
  if (!job) return reply(control::failed(job.error()), {});
  running_.at((*job)->spec.name).engine->ask(question, {}, [reply](Result<Packet> answer) {
    if (!answer) return reply(control::failed(answer.error()), {});
    std::vector<int> descriptors;
    for (const auto& descriptor : answer->descriptors) descriptors.push_back(descriptor.get());
    reply(answer->body, descriptors);
  });
}

}  // namespace muster::supervisor
