// Any text as a cluster file and as musterd.yaml: a result, or complaints with a place. An accepted file can
// be written and read again. An engine accepts each job that a cluster file gives.
#include "daemon/config/cluster.hpp"
#include "daemon/config/settings.hpp"
#include "daemon/supervisor/program/cluster_jobs.hpp"
#include "tests/fuzz/bytes.hpp"
#include "tests/fuzz/promise.hpp"
#include "tests/fuzz/target.hpp"

#include <nlohmann/json.hpp>

namespace muster::config {
namespace {

void check_places(const Diagnostics& diagnostics) {
  MUSTER_PROMISE(!diagnostics.text().empty());
  for (const Diagnostic& diagnostic : diagnostics.entries())
    MUSTER_PROMISE(diagnostic.line >= 1 && diagnostic.column >= 1 && !diagnostic.message.empty());
}

// The output of `muster config show`, given as flags, yields the same configuration.
void check_settings(std::string text) {
  Inputs inputs;
  inputs.file = Source("f.yaml", std::move(text));
  const auto resolved = resolve(inputs);
  if (!resolved) return check_places(resolved.error());
  Inputs again;
  for (const Resolved::InForce& line : resolved->in_force)
    again.flags.push_back({line.key, line.value, line.key});
  const auto same = resolve(again);
  MUSTER_PROMISE(same && same->in_force.size() == resolved->in_force.size());
  for (std::size_t i = 0; i < same->in_force.size(); ++i)
    MUSTER_PROMISE(same->in_force[i].value == resolved->in_force[i].value);
}

void check_cluster(std::string text) {
  const auto cluster = parse_cluster(Source("f.yaml", std::move(text)));
  if (!cluster) return check_places(cluster.error());
  for (const Cluster::JobEntry& job : cluster->jobs) MUSTER_PROMISE(cluster->ranks(job) >= 1);
  control::JobSpec defaults;
  defaults.networks_directory = "/networks";  // a daemon's own, whatever the file says
  const auto plan = supervisor::plan_of(*cluster, defaults);
  if (!plan) return check_places(plan.error());
  for (control::JobSpec job : plan->jobs) {
    job.epoch = 1;
    MUSTER_PROMISE(control::job_from_json(control::to_json(job)));
  }
  MUSTER_PROMISE(plan->roster.alone() || plan->roster.find(plan->roster.here) != nullptr);
}

}  // namespace
}  // namespace muster::config

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  muster::fuzz::Bytes bytes(data, size);
  const bool cluster = bytes.flag();
  if (cluster)
    muster::config::check_cluster(bytes.rest_as_text());
  else
    muster::config::check_settings(bytes.rest_as_text());
  return 0;
}
