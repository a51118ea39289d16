#include "daemon/cli/run/job_joiner.hpp"

#include "api/base/mesh/description.hpp"
#include "api/base/node_limits.hpp"
#include "api/base/words.hpp"
#include "api/shm/endpoint.hpp"
#include "daemon/cli/local/mesh_command.hpp"
#include "daemon/cli/run/stale_runs.hpp"

#include <numeric>

#include <unistd.h>

namespace muster::cli {
namespace {

constexpr Nanos kSeekAgain = std::chrono::milliseconds(100);

// Containers with pid namespaces may share a daemon, so the pid alone is not unique.
std::string fresh_job_name() {
  return fmt::format("run-{}-{:08x}", getpid(), static_cast<std::uint32_t>(chance_for_name()));
}

// The mesh of that job, with the flattened dims that were asked for, if it is the one that was asked for.
OrTrouble<mesh::Mesh> agreed_mesh(const RunPlan& plan, const std::string& job, const std::string& mesh,
                                  std::int64_t world) {
  // The job's creator may have written the same mesh in another way.
  const auto its = build_mesh(mesh, world, {});
  if (!its)
    return tl::unexpected(
        Trouble{kFailed, fmt::format("job {} has a mesh that this program cannot read: {}; install the "
                                     "same release of both",
                                     job, its.error().text)});
  auto built = build_mesh(plan.mesh_given ? plan.options.mesh : mesh, world, plan.options.flattens);
  if (built && built->degrees() != its->degrees())
    return usage(fmt::format("job {} has the mesh {}, not {}; leave --mesh out", job,
                             its->degrees().canonical(), built->degrees().canonical()));
  return built;
}

}  // namespace

JobJoiner::JobJoiner(control::Loop& loop, DaemonLink& link, const RunPlan& plan, Events events)
    : loop_(loop),
      link_(link),
      plan_(plan),
      events_(std::move(events)),
      give_up_at_(clock_.now() + plan.options.address.timeout) {
  job_.world = plan.options.ranks;
  job_.mesh = plan.options.mesh;
}

void JobJoiner::seek() {
  const bool named = !plan_.options.job.empty();
  job_.name = named ? plan_.options.job : fresh_job_name();
  named || plan_.is_head() ? find() : create();
}

// "status" asks no engine, so a stuck engine of another job does no harm.
void JobJoiner::find() {
  step({{"command", "status"}}, [this](const Json& result) {
    job_.node = node_of(result);
    const std::string& endpoint = link_.endpoint();
    const auto trouble = plan_.is_head()   ? hosts_trouble(*plan_.head, result, endpoint)
                         : plan_.is_part() ? part_trouble(plan_.options.part, job_.node, endpoint)
                                           : std::nullopt;
    if (trouble) return fail(*trouble);
    for (const Json& job : result.at("jobs")) {
      if (job.at("name") != job_.name) continue;
      if (job.at("state") != "ending") return join(job);
      // A former job of that name, as after `muster end`.
      return await(
          fmt::format("job {} is ending and does not end in time; `muster jobs{}` shows what is there",
                      job_.name, shm::endpoint_option(endpoint)));
    }
    const std::string why = awaited(result, job_.name);
    why.empty() ? create() : await(why);
  });
}

void JobJoiner::await(const std::string& why) {
  if (clock_.now() < give_up_at_) return ask_later();
  fail({kTimedOut, why + "; --timeout sets how long to wait"});
}

void JobJoiner::ask_later() {
  loop_.after(kSeekAgain, [this] {
    if (!over_) seek();
  });
}

void JobJoiner::join(const Json& job) {
  job_.stays = true;
  job_.world = job.at("world").get<std::int64_t>();
  if (plan_.is_head())
    if (const auto trouble = places_trouble(*plan_.head, job)) return fail(*trouble);
  if (plan_.options.ranks != 0 && plan_.options.ranks != job_.world)
    return fail({kUsage, fmt::format("job {} has {} ranks, not {}; leave -n out", job_.name, job_.world,
                                     plan_.options.ranks)});
  const auto mesh = agreed_mesh(plan_, job_.name, job.at("mesh").get<std::string>(), job_.world);
  if (!mesh) return fail(mesh.error());
  job_.mesh = mesh->degrees().canonical();
  const bool tokens = job.at("claim") == "token";
  const bool spans = job.contains("local");  // the job has ranks on other nodes too
  if (spans) job_.here = job.at("local").get<std::vector<std::uint32_t>>();
  place(spans);
  if (spans && !plan_.is_head() && !plan_.is_part())
    print_error(fmt::format("muster run: starts rank{} {} of job {}, those of node {}\n",
                            job_.here.size() == 1 ? "" : "s", rank_list(job_.here, ','), job_.name,
                            job_.node));
  if (plan_.options.flattens.empty()) return expect_ranks(tokens);
  // The hash covers the names of all groups, and so the flattened dims.
  const std::string hash = mesh::describe(mesh::GroupList(*mesh)).hash;
  step({{"command", "groups"}, {"job", job_.name}}, [this, tokens, hash](const Json& result) {
    if (result.at("hash") == hash) return expect_ranks(tokens);
    fail({kUsage, fmt::format("job {} has the mesh {} with other flattened dims than {}; leave --flatten "
                              "out (`muster groups{} --job {}` shows them)",
                              job_.name, job_.mesh, fmt::join(plan_.options.flattens, " "),
                              shm::endpoint_option(link_.endpoint()), job_.name)});
  });
}

// Which ranks the run starts, each without its token yet.
void JobJoiner::place(bool spans) {
  if (!spans) {
    job_.here.resize(static_cast<std::size_t>(job_.world));
    std::iota(job_.here.begin(), job_.here.end(), 0u);
  }
  job_.tokens.assign(job_.here.size(), "");
}

// A former run that was killed may have reported ranks as absent, and not that all may come again.
void JobJoiner::expect_ranks(bool tokens) {
  if (plan_.is_head()) return events_.on_joined(job_);  // the parts do it
  step({{"command", "expect_all"}, {"job", job_.name}},
       [this, tokens](const Json&) { tokens ? fetch_token(0) : events_.on_joined(job_); });
}

void JobJoiner::fetch_token(std::size_t index) {
  if (index == job_.tokens.size()) return events_.on_joined(job_);
  step({{"command", "token"}, {"job", job_.name}, {"rank", job_.here[index]}},
       [this, index](const Json& result) {
         job_.tokens[index] = result.at("token").get<std::string>();
         fetch_token(index + 1);
       });
}

void JobJoiner::create() {
  const RunPlan::Options& options = plan_.options;
  if (options.ranks == 0)
    return fail(
        {kNoObject, fmt::format("no job is named '{}'{}", job_.name,
                                plan_.is_part() ? " on node " + job_.node : "; give -n to create it")});
  if (options.ranks > kRanksOnNodeMax && !plan_.is_head()) return fail(too_many_ranks(options.ranks));
  Json flatten = Json::array();
  const auto flattens = parse_flattens(options.flattens);  // checked before
  for (const auto& entry : *flattens) flatten.push_back({{"name", entry.name}, {"dims", entry.members}});
  const Json spec{{"name", job_.name},
                  {"world", options.ranks},
                  {"mesh", options.mesh},
                  {"flatten", flatten},
                  {"claim", "owner"}};  // so that a rank may close its session and open another
  job_.stays = options.lifetime == RunPlan::Lifetime::kKeep;
  Json command{{"command", "job_create"}, {"spec", spec}, {"keep", job_.stays}};
  if (plan_.is_head()) ask_on_hosts(*plan_.head, options.address.timeout, command);
  link_.ask(command, [this](const OrTrouble<DaemonAnswer>& answer) { on_created(answer); });
}

// A daemon that was killed may have created the job and not answered. Its successor ends that job, since its
// connection is gone; until then the name is taken.
void JobJoiner::on_created(const OrTrouble<DaemonAnswer>& answer) {
  if (!answer && answer.error().code == Code::kDuplicate && clock_.now() < give_up_at_) return ask_later();
  const auto created = [this](const Json&) {
    place(false);
    events_.on_joined(job_);
  };
  take(answer, created, kFailed);  // here, "not found" means a part of the installation
}

// Asks, and continues with the result.
void JobJoiner::step(const Json& command, std::function<void(const Json&)> next) {
  link_.ask(command, [this, next = std::move(next)](const OrTrouble<DaemonAnswer>& answer) {
    take(answer, next, kNoObject);
  });
}

void JobJoiner::take(const OrTrouble<DaemonAnswer>& answer, const std::function<void(const Json&)>& next,
                     int not_found) {
  if (over_) return;
  if (!answer) {
    const int code = answer.error().exit_code;
    return fail({code == kNoObject ? not_found : code, answer.error().text});
  }
  try {
    next(answer->result);
  } catch (const Json::exception& error) {
    fail(not_as_expected(error));
  }
}

void JobJoiner::fail(const Trouble& trouble) {
  over_ = true;
  events_.on_trouble(trouble);
}

}  // namespace muster::cli
