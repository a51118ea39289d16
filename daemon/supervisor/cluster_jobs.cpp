#include "daemon/supervisor/cluster_jobs.hpp"

#include "api/base/assert.hpp"
#include "api/base/node_limits.hpp"

#include <utility>

namespace muster::supervisor {
namespace {

using config::Cluster;
using config::Complaint;
using config::Diagnostic;
using config::Diagnostics;
using config::JobEntry;

std::string path_of(const Cluster& cluster, const JobEntry& job) {
  return fmt::format("jobs[{}]", &job - cluster.jobs.data());
}

mesh::Degrees degrees_of(const JobEntry& job) {
  mesh::Degrees degrees;
  for (const auto& dim : job.mesh.dims) {
    std::int64_t* degree = degrees.find(dim.value.dim);
    MUSTER_ASSERT(degree != nullptr);  // the file's keys are the mesh's names
    *degree = dim.value.size;
  }
  return degrees;
}

std::vector<std::string> members_of(const config::FlattenEntry& flatten) {
  std::vector<std::string> members;
  for (const auto& dim : flatten.dims) members.push_back(dim.value);
  return members;
}

// One node only, and devices that this release supports.
void check_nodes(const Cluster& cluster, Diagnostics* diagnostics) {
  std::size_t hosts = 0;
  for (const auto& node : cluster.nodes) hosts += node.hosts.value.size();
  if (hosts > 1) {
    const auto& first = cluster.nodes.front().hosts;
    diagnostics->add(cluster.diagnostic(
        first.mark, first.path,
        {fmt::format("the jobs span {} hosts, and this release runs one node", hosts), "name one host", 0}));
  }
  for (std::size_t i = 0; i < cluster.nodes.size(); ++i) {
    const auto& node = cluster.nodes[i];
    if (node.device_kind == config::DeviceKind::kCuda)
      diagnostics->add(cluster.diagnostic(
          node.device_count.mark, fmt::format("nodes[{}].devices.kind", i),
          {"the engine of this release drives host devices only", "write kind: host, or auto", 0}));
  }
}

// The daemon's limits.
void check_limits(const Cluster& cluster, const ClusterLimits& limits, Diagnostics* diagnostics) {
  if (cluster.jobs.size() > limits.jobs_max) {
    const auto& first = cluster.jobs[limits.jobs_max].name;
    diagnostics->add(cluster.diagnostic(
        first.mark, first.path,
        {fmt::format("{} jobs, and limits.jobs_max is {}", cluster.jobs.size(), limits.jobs_max),
         "raise it, or name fewer", 0}));
  }
  for (const JobEntry& job : cluster.jobs) {
    const std::uint64_t ranks = cluster.ranks(job);
    if (ranks <= limits.ranks_per_job_max) continue;
    diagnostics->add(cluster.diagnostic(
        job.ranks ? job.ranks->mark : job.name.mark, job.ranks ? job.ranks->path : job.name.path,
        {fmt::format("job {} has {} ranks, and limits.ranks_per_job_max is {}", job.name.value, ranks,
                     limits.ranks_per_job_max),
         ranks > kRanksOnNodeMax ? fmt::format("{} are possible on a node", kRanksOnNodeMax)
                                 : std::string("raise it, or name fewer"),
         0}));
  }
}

}  // namespace

tl::expected<mesh::Mesh, Diagnostic> mesh_of(const Cluster& cluster, const JobEntry& job) {
  const auto world = static_cast<std::int64_t>(cluster.ranks(job));
  auto mesh = mesh::Mesh::build(degrees_of(job), world);
  if (!mesh)
    return tl::unexpected(cluster.diagnostic(job.mesh.mark, path_of(cluster, job) + ".mesh",
                                             {std::move(mesh).error().message(), "", 0}));
  for (const auto& flatten : job.mesh.flatten) {
    const auto added = mesh->flatten(flatten.name.value, members_of(flatten));
    if (!added)
      return tl::unexpected(
          cluster.diagnostic(flatten.name.mark, flatten.name.path, {added.error().message(), "", 0}));
  }
  return *std::move(mesh);
}

config::Parsed<std::vector<control::JobSpec>> jobs_of(const Cluster& cluster,
                                                      const control::JobSpec& defaults,
                                                      const ClusterLimits& limits) {
  Diagnostics diagnostics;
  check_nodes(cluster, &diagnostics);
  check_limits(cluster, limits, &diagnostics);
  std::vector<control::JobSpec> specs;
  for (const JobEntry& job : cluster.jobs) {
    auto mesh = mesh_of(cluster, job);
    if (!mesh) {
      diagnostics.add(std::move(mesh).error());
      continue;
    }
    control::JobSpec spec = defaults;
    spec.name = job.name.value;
    spec.world = mesh->world();
    spec.mesh = mesh->degrees().canonical();
    for (const auto& flatten : job.mesh.flatten)
      spec.flatten.emplace_back(flatten.name.value, members_of(flatten));
    spec.claim =
        job.claim == config::ClaimRule::kToken ? control::ClaimRule::kToken : control::ClaimRule::kOwner;
    if (job.lanes.deadline) spec.deadline = *job.lanes.deadline;
    if (job.digests) spec.digests = *job.digests;
    specs.push_back(std::move(spec));
  }
  if (!diagnostics.empty()) return tl::unexpected(std::move(diagnostics));
  return specs;
}

}  // namespace muster::supervisor
