#include "daemon/supervisor/status_report.hpp"

#include "daemon/control/own_version.hpp"

#include <algorithm>
#include <memory>
#include <set>
#include <utility>

#include <unistd.h>

namespace muster::supervisor {
namespace {

using control::Json;
using control::Packet;

// No longer than the caller waits.
Nanos report_time(const Json& body) {
  const auto field = body.find("wait_ns");
  if (field == body.end() || !field->is_number_unsigned()) return StatusReport::kReportTime;
  const auto most = static_cast<std::uint64_t>(StatusReport::kReportTime.count());
  return Nanos(static_cast<std::int64_t>(std::min(field->get<std::uint64_t>(), most)));
}

// What a user has, and its shares.
Json of_user(std::uint32_t uid, const Shares& jobs, const Shares& sessions, const Shares& memory) {
  return Json{{"uid", uid},
              {"jobs", jobs.of(uid)},
              {"jobs_share", jobs.share(uid)},
              {"sessions", sessions.of(uid)},
              {"sessions_share", sessions.share(uid)},
              {"memory_bytes", memory.of(uid)},
              {"memory_share_bytes", memory.share(uid)}};
}

// Collects the engines' answers. An engine may never answer, and the caller may ask again; after the reply
// only this small object waits for that engine.
struct Gathered {
  Json jobs = Json::array();
  std::size_t open = 1;
  control::Loop::Watch timer = 0;
  Reply reply;  // empty once it has been called

  void answer() {
    if (const Reply once = std::exchange(reply, nullptr))
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

Json StatusReport::status(std::uint32_t uid) const {
  const State& state = from_.saved.state();
  const Shares memory = from_.memory.held();
  Json jobs = Json::array();
  for (const auto& [name, job] : from_.table.jobs())
    if (JobTable::may_act(job, uid).ok()) jobs.push_back(describe(job));  // as in jobs()
  Json later = Json::array();
  for (const auto& [name, value] : state.later.items()) later.push_back(name);
  Json result = version();
  result["uptime_ns"] = (clock_.now() - Instant(state.started_ns)).count();
  result["socket"] = from_.entrance.socket().path();
  result["epoch"] = state.epoch;
  result["state"] = {
      {"version", state_format().version}, {"read", from_.saved.read_version()}, {"later", std::move(later)}};
  result["takeover_ns"] = from_.adoption.time().count();
  result["draining"] = from_.jobs.closed();
  result["sessions"] = from_.table.sessions();
  result["jobs"] = std::move(jobs);
  result["jobs_total"] = from_.table.jobs().size();  // with those of other users
  result["memory_bytes"] = memory.all();
  result["limits"] = {{"jobs_max", from_.options.jobs_max},
                      {"sessions_max", from_.options.sessions_max},
                      {"ranks_per_job_max", from_.options.ranks_per_job_max},
                      {"memory_max", memory.share(0)}};
  result["users"] = users(uid);
  if (from_.peers.alone()) return result;
  result["cluster"] = from_.peers.report();
  result["cluster"]["waiting"] = from_.spanning.report();
  return result;
}

// A user who governs the daemon sees all users who have something; any other user sees only itself.
Json StatusReport::users(std::uint32_t uid) const {
  const Shares& places = from_.table.places();
  const Shares sessions = from_.claims.sessions_by_user();
  const Shares memory = from_.memory.held();
  std::set<std::uint32_t> shown{uid};
  if (memory.governs(uid))
    for (const Shares* shares : {&places, &sessions, &memory})
      for (const auto& [user, has] : shares->by_user()) shown.insert(user);
  Json all = Json::array();
  for (const std::uint32_t user : shown) all.push_back(of_user(user, places, sessions, memory));
  return all;
}

Json StatusReport::describe(const Job& job) const {
  Json json{{"name", job.spec.name},
            {"state", state_name(job.state)},
            {"world", job.spec.world.size()},
            {"mesh", job.spec.mesh},
            {"owner_uid", job.spec.owner_uid},
            {"epoch", job.spec.epoch},
            {"claim", job.spec.claim == control::ClaimRule::kToken ? "token" : "owner"},
            {"engine_pid", from_.jobs.facts(job.spec.name).engine_pid},
            {"attached", job.held()}};
  if (job.spec.world.nodes().size() > 1) {
    json["nodes"] = job.spec.world.nodes();
    json["here"] = job.spec.world.local_count();
  }
  return json;
}

void StatusReport::jobs(std::uint32_t uid, const Json& body, const Reply& reply) const {
  const auto gathered = std::make_shared<Gathered>();
  gathered->reply = reply;
  gathered->timer = loop_.after(report_time(body), [gathered] { gathered->answer(); });
  const auto close = [&loop = loop_, gathered] {
    if (--gathered->open > 0) return;
    loop.unwatch(gathered->timer);
    gathered->answer();
  };
  for (const auto& [name, job] : from_.table.jobs()) {
    if (!JobTable::may_act(job, uid).ok()) continue;  // other users' jobs are not shown
    const std::size_t index = gathered->jobs.size();
    gathered->jobs.push_back(describe(job));
    gathered->jobs[index].update({{"ranks", Json::array()}, {"answered", false}});
    ++gathered->open;
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
