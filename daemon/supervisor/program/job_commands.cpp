#include "daemon/supervisor/program/job_commands.hpp"

#include "api/shm/endpoint.hpp"
#include "daemon/supervisor/listener/cgroup_origin.hpp"
#include "daemon/supervisor/questions/merged_hang.hpp"
#include "daemon/supervisor/spanning/job_request.hpp"

#include <utility>

namespace muster::supervisor {
namespace {

using control::Json;
using control::Packet;

constexpr std::size_t kTextOfOneNodeMax = std::size_t{1} << 30;  // it is passed on, and not read
constexpr std::size_t kKindBytes = 32;                           // of a report, in a message
constexpr std::size_t kAskerBytes = 32;     // of the requester's command, in the reason that ranks get
constexpr std::size_t kRankTextBytes = 32;  // of a bad rank in a message
constexpr std::size_t kOfBytes = 64;        // of a bad batch job in a message

void refuse(const Connections::Caller& caller, const Status& why) {
  caller.reply(control::failed(why), {});
}

// The reason for the end of a job: the requester, and the command.
std::string ended_by(const Connections::Caller& caller, const Json& body) {
  const auto by = body.find("by");
  const bool said = by != body.end() && by->is_string();
  const std::string with = said ? fmt::format(" with {}", by->get<std::string>().substr(0, kAskerBytes)) : "";
  return fmt::format("by {}{}", control::text_of(caller.actor.who), with);
}

// The rank in the command; the job must have it.
Result<Rank> rank_in(const Job& job, const Json& body) {
  const auto field = body.find("rank");
  const bool number = field != body.end() && field->is_number_unsigned();
  if (number && field->get<std::uint64_t>() < job.spec.world.size()) return Rank(field->get<std::uint32_t>());
  const std::string text =
      field == body.end() ? "null" : field->dump(-1, ' ', false, Json::error_handler_t::replace);
  return fail(Code::kBadArgument, "rank {} is not in 0..{} of job {}", text.substr(0, kRankTextBytes),
              job.spec.world.size() - 1, job.spec.name);
}

}  // namespace

JobCommands::JobCommands(JobTable& table, RunningJobs& jobs, SpanningJobs& spanning, Evictions& evictions,
                         PeerQuestions& questions, GatheredTexts& texts, Retries& retries,
                         const Connections& connections, const Options& options, std::function<void()> save)
    : table_(table),
      jobs_(jobs),
      spanning_(spanning),
      evictions_(evictions),
      questions_(questions),
      texts_(texts),
      retries_(retries),
      connections_(connections),
      options_(options),
      save_(std::move(save)) {}

bool JobCommands::run(const std::string& command, const Connections::Caller& caller, const Json& body) {
  if (command == "job_create") {
    body.contains("nodes") ? create_on_nodes(caller, body) : create(caller, body, 0);
  } else if (command == "job_destroy") {
    destroy(caller, body);
  } else if (command == "end_of") {
    end_of(caller, body);
  } else if (command == "token") {
    token(caller, body);
  } else if (command == "absent") {
    absent(caller, body);
  } else if (command == "counters") {
    counters(caller, body);
  } else if (command == "hang") {
    hang(caller, body);
  } else if (command == "reports") {
    reports(caller, body);
  } else if (command == "groups" || command == "expect_all" || command == "flight") {
    forward(caller, body, {{"command", command}});
  } else if (command == "trace_begin" || command == "trace_end") {
    forward(caller, body, {{"command", command}, {"by", body.value("by", "")}});
  } else {
    return false;
  }
  return true;
}

Result<const Job*> JobCommands::job_for(const Connections::Caller& caller, const Json& body) const {
  const std::string said = body.value("job", "");
  MUSTER_ASSIGN_OR_RETURN(const std::string id, table_.id_of(said, caller.actor));
  const Job* job = std::as_const(table_).find(id);
  if (job == nullptr)
    return fail(Code::kNotFound, "no job is named '{}'; `muster jobs{}` lists them", said,
                shm::endpoint_option(options_.job_defaults.endpoint));
  MUSTER_RETURN_IF_ERROR(may_act(*job, caller.actor));
  return job;
}

void JobCommands::create(const Connections::Caller& caller, const Json& body, int attempts) {
  const auto spec =
      control::job_asked_for(body.value("spec", Json::object()), options_.job_defaults, caller.actor);
  if (!spec) return refuse(caller, spec.error());
  if (body.value("keep", false) && !caller.actor.who.is_home())
    return refuse(caller,
                  failure(Code::kDenied, "only users of this node keep a job beyond its run (--keep), not {}",
                          control::text_of(caller.actor.who)));
  const std::string name = spec->id();
  const Connections::Id owner = body.value("keep", false) ? 0 : caller.id;
  const auto created = [this, caller, name](const Status& status) {
    status.ok() ? answer_created(caller, name) : refuse(caller, status);
  };
  // The command was repeated on the same connection: a predecessor ran it, and its answer was lost.
  if (const Job* job = table_.find(name); job != nullptr && owner != 0 && jobs_.facts(name).owner == owner &&
                                          job->spec.world.size() == spec->world.size() &&
                                          job->spec.mesh == spec->mesh) {
    if (job->state == Job::State::kReady) return created({});
    if (job->state != Job::State::kEnding) {
      if (const Status waits = jobs_.await_ready(name, created); !waits.ok()) refuse(caller, waits);
      return;
    }
  }
  const bool wants_place = !jobs_.closed() && table_.find(name) == nullptr;
  if (wants_place) {  // no job ends for one that cannot be made
    for (const Status& possible : {spanning_.awaited(name), check_size(*spec, options_)})
      if (!possible.ok()) return refuse(caller, possible);
  }
  if (wants_place && create_later(caller, name, attempts,
                                  [this, caller, body](int so_many) { create(caller, body, so_many); }))
    return;
  const Status started = jobs_.start(*spec, {.gid = caller.gid, .owner = owner}, created);
  if (!started.ok()) refuse(caller, started);
}

// True: there is no place now, but may be one soon. A job without ranks makes room, or a job that could is
// just losing its last rank.
bool JobCommands::create_later(const Connections::Caller& caller, const std::string& name, int attempts,
                               std::function<void(int attempts)> again) {
  const Account& account = caller.actor.who.account;
  if (table_.places().has_room(account)) return false;
  const bool evicted =
      !table_.place_is_coming(account) && evictions_.make_room(caller.actor, fmt::format("job {}", name));
  const auto has_left = [this, id = caller.id] { return !connections_.contains(id); };
  const auto next = [again = std::move(again), has_left](int so_many) {
    if (!has_left()) again(so_many);
  };
  if ((attempts == 0 || evicted) && retries_.may_wait_for_place(account)) {
    retries_.wait_for_place({account, name, has_left, [next] { next(1); }});
    return true;
  }
  if (!retries_.may_try_again(attempts + 1, account)) return false;
  retries_.try_again(attempts + 1, account, [next, attempts] { next(attempts + 1); });
  return true;
}

void JobCommands::create_on_nodes(const Connections::Caller& caller, const Json& body) {
  if (body.value("keep", false))
    return refuse(caller,
                  failure(Code::kBadArgument,
                          "a job of several nodes that stays is one of the cluster file; name it there"));
  const auto shares = shares_of(body["nodes"]);
  const auto world = shares ? world_of(*shares, {}, options_) : fail(shares.error());
  if (!world) return refuse(caller, world.error());
  if (!caller.actor.who.is_home())
    return refuse(caller, failure(Code::kDenied,
                                  "other nodes do not know {}; ask for a job of several nodes outside of "
                                  "containers",
                                  control::text_of(caller.actor.who)));
  auto spec = control::job_asked_for(body.value("spec", Json::object()), options_.job_defaults, caller.actor,
                                     &*world);
  if (!spec) return refuse(caller, spec.error());
  spec->network = options_.roster.network;
  spec->tie_breaker = options_.roster.tie_breaker;
  spec->asked_on = options_.roster.here;
  const auto made = [this, caller, name = spec->id()](const Status& status) {
    status.ok() ? answer_created(caller, name) : refuse(caller, status);
  };
  // The answer comes before the caller stops waiting, and can so name the node that is too slow.
  const Nanos patience =
      body.contains("wait_ns") ? timeout_in(body, control::kJobDurationMax) : JobMaking::kPrepareTime;
  const Status begun = spanning_.make(*std::move(spec), caller.gid, {caller.id, made, patience});
  if (!begun.ok()) refuse(caller, begun);
}

void JobCommands::answer_created(const Connections::Caller& caller, const std::string& name) {
  const Job& job = *table_.find(name);
  Json result{{"job", job.spec.name}, {"epoch", job.spec.epoch}};
  if (job.spec.claim == control::ClaimRule::kToken) {
    result["tokens"] = Json::array();
    for (const Rank rank : job.spec.world.locals()) {
      const std::string text = options_.random_hex();
      static_cast<void>(table_.issue(name, rank, text));
      result["tokens"].push_back(text);
    }
    save_();  // before anybody gets the tokens
  }
  if (connections_.contains(caller.id)) caller.reply(control::success(std::move(result)), {});
}

void JobCommands::destroy(const Connections::Caller& caller, const Json& body) {
  const auto job = job_for(caller, body);
  if (!job) return refuse(caller, job.error());
  jobs_.end((*job)->spec.id(), ended_by(caller, body));
  caller.reply(control::success(Json::object()), {});
}

// All jobs of a batch job, whatever their names.
void JobCommands::end_of(const Connections::Caller& caller, const Json& body) {
  constexpr std::string_view kSlurm = "slurm:";
  const std::string of = body.value("of", "");
  const std::string slurm_job = of.starts_with(kSlurm) ? origin_said(of.substr(kSlurm.size())).slurm_job : "";
  if (slurm_job.empty() || of.size() != kSlurm.size() + slurm_job.size())
    return refuse(caller, failure(Code::kBadArgument, "'{}' names no batch job; say slurm: and its number",
                                  of.substr(0, kOfBytes)));
  Json names = Json::array();
  for (const std::string& id : jobs_of_slurm(table_, slurm_job, caller.actor)) {
    names.push_back(table_.name_for(*table_.find(id), caller.actor));
    jobs_.end(id, ended_by(caller, body));
  }
  caller.reply(control::success({{"jobs", std::move(names)}}), {});
}

void JobCommands::token(const Connections::Caller& caller, const Json& body) {
  if (!connections_.contains(caller.id)) return;  // it has left while waiting for the engine
  const auto job = job_for(caller, body);
  const auto rank = job ? rank_in(**job, body) : Result<Rank>(fail(job.error()));
  if (!rank) return refuse(caller, rank.error());
  const std::string name = (*job)->spec.id();
  if ((*job)->state == Job::State::kAdopting) {
    // A token counts from its rank's number of attachments, which only the engine knows.
    const auto again = [this, caller, body](const Status& status) {
      status.ok() ? token(caller, body) : refuse(caller, status);
    };
    if (const Status waits = jobs_.await_ready(name, again); !waits.ok()) refuse(caller, waits);
    return;
  }
  const std::string text = options_.random_hex();
  if (const Status issued = table_.issue(name, *rank, text); !issued.ok()) return refuse(caller, issued);
  save_();
  caller.reply(control::success({{"token", text}}), {});
}

void JobCommands::absent(const Connections::Caller& caller, const Json& body) {
  const auto job = job_for(caller, body);
  const auto rank = job ? rank_in(**job, body) : Result<Rank>(fail(job.error()));
  if (!rank) return refuse(caller, rank.error());
  forward(caller, body, {{"command", "absent"}, {"rank", rank->value}, {"text", body.at("text")}});
}

// Asks the engines of all of the job's nodes; a job of this node alone has one, whose answer is passed on.
void JobCommands::hang(const Connections::Caller& caller, const Json& body) {
  const auto job = job_for(caller, body);
  if (!job) return refuse(caller, job.error());
  const control::JobSpec& spec = (*job)->spec;
  if (spec.world.nodes().size() < 2) return forward(caller, body, {{"command", "hang"}});
  questions_.ask_nodes(
      **job, "snapshot", timeout_in(body, PeerQuestions::kTime),
      [caller, name = spec.name, world = spec.world, at = spec.endpoint](const auto& answers) {
        caller.reply(control::success(merged_hang(name, world, answers, at)), {});
      });
}

// Gathers the reports of all nodes, each about its own part. The caller merges them.
void JobCommands::reports(const Connections::Caller& caller, const Json& body) {
  const auto job = job_for(caller, body);
  if (!job) return refuse(caller, job.error());
  const std::string kind = body.value("kind", "");
  if (!NodeTexts::is_kind(kind))
    return refuse(caller, failure(Code::kBadArgument, "nodes have no reports of kind '{}'",
                                  kind.substr(0, kKindBytes)));
  const World& world = (*job)->spec.world;
  if (world.nodes().size() < 2)
    return texts_.ask_alone(**job, kind, [caller, world](const Result<shm::Descriptor>& text) {
      const auto bytes = text ? control::text_bytes(*text, kTextOfOneNodeMax) : fail(text.error());
      if (!bytes) return refuse(caller, bytes.error());
      const int descriptor = text->get();
      caller.reply(control::success(text_of_one_node(world, *bytes)), std::span(&descriptor, 1));
    });
  texts_.gather(**job, kind, timeout_in(body, GatheredTexts::kTime), [caller, world](const auto& texts) {
    GatheredTexts::AnswerOfAll all = texts_of_nodes(world, texts);
    const auto text = control::text_descriptor(all.text + "\n");  // never empty
    if (!text) return refuse(caller, text.error());
    const int descriptor = text->get();
    caller.reply(control::success(std::move(all.result)), std::span(&descriptor, 1));
  });
}

// Does not ask the engine, which may be stuck.
void JobCommands::counters(const Connections::Caller& caller, const Json& body) {
  const auto job = job_for(caller, body);
  if (!job) return refuse(caller, job.error());
  const std::string name = (*job)->spec.id();
  const RunningJobs::Facts facts = jobs_.facts(name);
  if (facts.counters < 0)
    return refuse(caller, failure(Code::kState, "job {} is still starting; try again", name));
  Json result{{"job", name}, {"engine_pid", facts.engine_pid}};
  const World& world = (*job)->spec.world;
  if (world.nodes().size() > 1) result["node"] = world.name_of(world.here());
  caller.reply(control::success(std::move(result)), std::span(&facts.counters, 1));
}

// Passes a question to the job's engine, and the engine's answer back unchanged.
void JobCommands::forward(const Connections::Caller& caller, const Json& body, const Json& question) {
  const auto job = job_for(caller, body);
  if (!job) return refuse(caller, job.error());
  jobs_.ask((*job)->spec.id(), question, {}, [caller](const Result<Packet>& answer) {
    if (!answer) return refuse(caller, answer.error());
    std::vector<int> descriptors;
    for (const auto& descriptor : answer->descriptors) descriptors.push_back(descriptor.get());
    caller.reply(answer->body, descriptors);
  });
}

}  // namespace muster::supervisor
