#include "daemon/cli/run/run_plan.hpp"

#include "api/base/node_limits.hpp"
#include "daemon/cli/ask/trace_file.hpp"
#include "daemon/cli/local/mesh_command.hpp"

namespace muster::cli {
namespace {

// Whether a private daemon can do what was asked.
std::optional<Trouble> check_home(const RunPlan::Options& options) {
  if (options.home != RunPlan::Home::kPrivate) return std::nullopt;
  if (options.ranks > kRanksOnNodeMax) return too_many_ranks(options.ranks);
  if (options.lifetime == RunPlan::Lifetime::kKeep)
    return Trouble{kUsage,
                   "run: --private and --keep exclude each other: a private daemon ends with the run, and "
                   "the job with it; leave one out"};
  if (options.ranks == 0)
    return Trouble{kUsage,
                   fmt::format("run: a private daemon has no job '{}' yet; give -n to create it, or leave "
                               "--private out",
                               options.job)};
  return std::nullopt;
}

std::optional<Trouble> check_options(const RunPlan::Options& options, bool is_head) {
  if (options.ranks == 0 && options.job.empty()) return Trouble{kUsage, "run: say how many ranks, with -n"};
  if (options.ranks > kRanksOnNodeMax && options.job.empty() && !is_head)
    return too_many_ranks(options.ranks);
  if (const auto trouble = check_home(options)) return trouble;
  if (options.lifetime == RunPlan::Lifetime::kKeep && options.job.empty())
    return Trouble{kUsage, "run: --keep needs --job: the name by which the next run finds the job"};
  if (!options.trace.empty())
    if (const auto trouble = check_writable("--trace", options.trace)) return trouble;
  if (!options.job.empty())
    if (const Status name = control::check_job_name(options.job); !name.ok()) return trouble_of(name);
  return std::nullopt;
}

// The head of a run over the hosts that were asked for; nothing for another run.
OrTrouble<std::optional<RunHead>> head_for(const RunPlan::Options& options) {
  auto head = plan_head(options.head, options.ranks, options.environment);
  if (!head || !*head) return head;
  const bool is_private = options.home == RunPlan::Home::kPrivate;
  if (!is_private && options.lifetime == RunPlan::Lifetime::kRun) return head;
  return usage(
      fmt::format("run: --hosts and {} exclude each other: the job lies with the daemons "
                  "of all hosts, and ends with the run; leave one out",
                  is_private ? "--private" : "--keep"));
}

}  // namespace

OrTrouble<RunPlan> plan_run(RunPlan::Options options) {
  RunPlan plan{std::move(options), std::nullopt, false};
  RunPlan::Options& its = plan.options;
  if (plan.is_part()) {
    if (auto trouble = enter_folder(its.part)) return tl::unexpected(*std::move(trouble));
  } else {
    auto head = head_for(its);
    if (!head) return tl::unexpected(head.error());
    plan.head = *std::move(head);
    if (plan.is_head()) its.ranks = plan.head->ranks();
  }
  if (auto trouble = check_options(its, plan.is_head())) return tl::unexpected(*std::move(trouble));
  plan.mesh_given = !its.mesh.empty();
  if (its.mesh.empty()) its.mesh = mesh::kUnsaidDegrees;
  if (its.ranks == 0) return plan;
  const auto mesh = build_mesh(its.mesh, its.ranks, its.flattens);
  if (!mesh) return tl::unexpected(mesh.error());
  its.mesh = mesh->degrees().canonical();
  return plan;
}

Trouble too_many_ranks(std::int64_t ranks) {
  return {kUsage, fmt::format("run: -n {}: a job on one node can have {} ranks at most "
                              "(limits.ranks_per_job_max goes no higher); start fewer",
                              ranks, kRanksOnNodeMax)};
}

}  // namespace muster::cli
