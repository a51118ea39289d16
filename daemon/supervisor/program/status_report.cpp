#include "daemon/supervisor/program/status_report.hpp"

#include "daemon/control/own_version.hpp"

#include <map>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include <unistd.h>

namespace muster::supervisor {
namespace {

using control::Json;
using control::Packet;

// Other nodes get less time than the whole answer, so that it says why one has not answered.
constexpr int kOthersTenths = 9;

// The jobs, sessions and memory of a user, and its shares.
Json of_account(const Account& account, const Shares& jobs, const Shares& sessions, const Shares& memory) {
  return Json{{"uid", account.uid},
              {"container", account.container},
              {"jobs", jobs.of(account)},
              {"jobs_share", jobs.share(account)},
              {"sessions", sessions.of(account)},
              {"sessions_share", sessions.share(account)},
              {"memory_bytes", memory.of(account)},
              {"memory_share_bytes", memory.share(account)}};
}

// A rank as an engine of any node reports it; null: not well-formed, or not of that node.
Json rank_said(const World& world, NodeIndex node, const Json& said) {
  const auto number = [&](const char* name) -> Json {
    const auto field = said.find(name);
    return field != said.end() && field->is_number_unsigned() ? *field : Json(nullptr);
  };
  if (!said.is_object() || number("rank").is_null()) return nullptr;
  const auto rank = said.at("rank").get<std::uint64_t>();
  const auto attached = said.find("attached");
  if (rank >= world.size() || world.node_of(Rank(static_cast<std::uint32_t>(rank))) != node ||
      attached == said.end() || !attached->is_boolean())
    return nullptr;
  Json json{{"rank", rank}, {"node", world.name_of(node)}, {"attached", *attached}};
  for (const char* name : {"pid", "attachments", "arena_used_bytes", "arena_reserved_bytes"})
    if (json[name] = number(name); json[name].is_null()) return nullptr;
  return json;
}

// The ranks of all nodes of a job, and the nodes that have not said all of theirs.
Json ranks_of(const World& world, const std::vector<PeerQuestions::NodeAnswer>& answers) {
  Json ranks = Json::array();
  Json unanswered = Json::array();
  bool here = false;
  for (std::uint32_t n = 0; n < answers.size(); ++n) {
    const auto& answer = answers[n];
    std::set<std::uint32_t> silent;
    for (std::uint32_t rank = 0; rank < world.size(); ++rank)
      if (world.node_of(Rank(rank)) == NodeIndex(n)) silent.insert(rank);
    if (answer.result)
      for (const Json& said : answer.result->value("ranks", Json::array())) {
        Json rank = rank_said(world, NodeIndex(n), said);
        if (rank.is_null() || silent.erase(rank.at("rank").get<std::uint32_t>()) == 0) continue;
        ranks.push_back(std::move(rank));
      }
    if (NodeIndex(n) == world.here()) here = silent.empty();
    if (silent.empty()) continue;
    const std::string why =
        answer.result ? "its answer does not mention them" : answer.result.error().message();
    unanswered.push_back({{"node", answer.node}, {"ranks", silent}, {"why", why}});
  }
  return {{"ranks", std::move(ranks)}, {"unanswered", std::move(unanswered)}, {"answered", here}};
}

// The nodes of a job with the number of ranks on each, and the ranks of this node.
void add_places(const World& world, Json* job) {
  std::vector<std::uint32_t> shares(world.nodes().size());
  for (std::uint32_t rank = 0; rank < world.size(); ++rank) ++shares[world.node_of(Rank(rank)).value];
  Json local = Json::array();
  for (const Rank rank : world.locals()) local.push_back(rank.value);
  (*job)["nodes"] = world.nodes();
  (*job)["shares"] = std::move(shares);
  (*job)["here"] = world.local_count();
  (*job)["local"] = std::move(local);
  (*job)["node"] = world.name_of(world.here());
}

Json origin_json(const CgroupOrigin& origin) {
  Json json = Json::object();
  for (const auto& [name, value] :
       {std::pair{"container", &origin.container}, std::pair{"pod", &origin.pod},
        std::pair{"slurm_job", &origin.slurm_job}, std::pair{"slurm_step", &origin.slurm_step}})
    if (!value->empty()) json[name] = *value;
  return json;
}

// The attached ranks of this node by where they are: [{ranks, container, …, text, said: {…}}].
Json origins_of(const Job& job) {
  std::map<RankOrigin, std::vector<std::uint32_t>> ranks;
  for (const Rank rank : job.spec.world.locals())
    if (const Job::Claim& claim = job.claims[rank]; claim.held && !claim.origin.empty())
      ranks[claim.origin].push_back(rank.value);
  Json origins = Json::array();
  for (const auto& [origin, where] : ranks) {
    Json json = origin_json(origin.seen);
    Json said = origin_json(origin.said);
    if (!origin.said_host.empty()) said["host"] = origin.said_host;
    json.update({{"ranks", where}, {"text", text_of(origin)}});
    if (!said.empty()) json["said"] = std::move(said);
    origins.push_back(std::move(json));
  }
  return origins;
}

// Collects the engines' answers. An engine may never answer, and the caller may ask again; after the reply
// only this small object waits for that engine.
struct Gathered {
  Json jobs = Json::array();
  std::size_t open = 1;
  control::Loop::Watch timer = 0;
  decltype(Connections::Caller::reply) reply;  // empty once it has been called

  void answer() {
    if (const auto once = std::exchange(reply, nullptr))
      once(control::success({{"jobs", std::move(jobs)}}), {});
  }
};

}  // namespace

Json StatusReport::version() const {
  return Json{{"version", control::own_version()},
              {"abi", shm::kAbiVersion},
              {"pid", getpid()},
              {"instance", from_.saved.state().instance},
              {"program", from_.options.program}};
}

Json StatusReport::costs() const {
  return Json{{"costs", control::to_json(from_.costs.get())}};
}

Json StatusReport::status(const control::Actor& actor) const {
  const State& state = from_.saved.state();
  const Shares memory = from_.memory.held();
  Json jobs = Json::array();
  for (const auto& [name, job] : from_.table.jobs())
    if (may_act(job, actor).ok()) jobs.push_back(describe(job, actor));  // as in jobs()
  Json later = Json::array();
  for (const auto& [name, value] : state.later.items()) later.push_back(name);
  Json result = version();
  result["uptime_ns"] = (clock_.now() - Instant(state.started_ns)).count();
  result["socket"] = from_.listeners.socket().path();
  result["directory"] = from_.listeners.directory();
  result["epoch"] = state.epoch;
  result["state"] = {
      {"version", state_format().version}, {"read", from_.saved.read_version()}, {"later", std::move(later)}};
  result["takeover_ns"] = from_.takeover.time().count();
  result["draining"] = from_.jobs.closed();
  result["sessions"] = from_.table.sessions();
  result["jobs"] = std::move(jobs);
  result["jobs_total"] = from_.table.jobs().size();  // with those of other users
  result["memory_bytes"] = memory.all();
  result["limits"] = {{"jobs_max", from_.options.jobs_max},
                      {"sessions_max", from_.options.sessions_max},
                      {"ranks_per_job_max", from_.options.ranks_per_job_max},
                      {"memory_max", memory.share(0)}};
  result["users"] = users(actor);
  if (from_.peers.alone()) return result;
  result["cluster"] = from_.peers.report();
  result["cluster"]["waiting"] = from_.spanning.report();
  for (Json& gathers : from_.rendezvous_service.report(actor))
    result["cluster"]["waiting"].push_back(std::move(gathers));
  return result;
}

// A user who governs the daemon sees all users who have something; any other user sees only itself.
Json StatusReport::users(const control::Actor& actor) const {
  const Shares& places = from_.table.places();
  const Shares sessions = from_.claims.sessions_by_user();
  const Shares memory = from_.memory.held();
  std::set<Account> shown{actor.who.account};
  if (actor.governs)
    for (const Shares* shares : {&places, &sessions, &memory})
      for (const auto& [account, has] : shares->by_user()) shown.insert(account);
  Json all = Json::array();
  for (const Account& account : shown) all.push_back(of_account(account, places, sessions, memory));
  return all;
}

Json StatusReport::describe(const Job& job, const control::Actor& actor) const {
  Json json{{"name", from_.table.name_for(job, actor)},
            {"state", state_name(job.state)},
            {"world", job.spec.world.size()},
            {"mesh", job.spec.mesh},
            {"owner_uid", job.spec.owner.uid},
            {"owner", control::text_of(job.spec.owner)},
            {"epoch", job.spec.epoch},
            {"claim", job.spec.claim == control::ClaimRule::kToken ? "token" : "owner"},
            {"engine_pid", from_.jobs.facts(job.spec.id()).engine_pid},
            {"attached", job.held()},
            {"origins", origins_of(job)}};
  if (job.spec.world.nodes().size() > 1) add_places(job.spec.world, &json);
  return json;
}

void StatusReport::jobs(const Connections::Caller& caller, const Json& body) const {
  const auto gathered = std::make_shared<Gathered>();
  gathered->reply = caller.reply;
  gathered->timer = loop_.after(timeout_in(body, kReportTime), [gathered] { gathered->answer(); });
  const auto close = [&loop = loop_, gathered] {
    if (--gathered->open > 0) return;
    loop.unwatch(gathered->timer);
    gathered->answer();
  };
  for (const auto& [name, job] : from_.table.jobs()) {
    if (!may_act(job, caller.actor).ok()) continue;  // other users' jobs are not shown
    const std::size_t index = gathered->jobs.size();
    gathered->jobs.push_back(describe(job, caller.actor));
    gathered->jobs[index].update({{"ranks", Json::array()}, {"answered", false}});
    ++gathered->open;
    const World& world = job.spec.world;
    if (world.nodes().size() > 1) {
      from_.questions.ask_nodes(job, "report", timeout_in(body, kReportTime) * kOthersTenths / 10,
                                [gathered, index, close, world](const auto& answers) {
                                  if (gathered->reply) gathered->jobs[index].update(ranks_of(world, answers));
                                  close();
                                });
      continue;
    }
    const auto hear = [gathered, index, close](const Result<Packet>& answer) {
      if (answer && gathered->reply)
        if (const auto result = control::result_of(*answer); result && result->is_object())
          gathered->jobs[index].update(
              {{"ranks", result->value("ranks", Json::array())}, {"answered", true}});
      close();
    };
    from_.jobs.ask(name, Json{{"command", "report"}}, {}, hear);
  }
  close();
}

}  // namespace muster::supervisor
