#include "daemon/supervisor/program/cluster_jobs.hpp"

#include "api/base/assert.hpp"
#include "api/base/node_limits.hpp"

#include <algorithm>
#include <optional>
#include <utility>

namespace muster::supervisor {
namespace {

using config::Cluster;
using config::Complaint;
using config::Diagnostic;
using config::Diagnostics;

std::string path_of(const Cluster& cluster, const Cluster::JobEntry& job) {
  return fmt::format("jobs[{}]", &job - cluster.jobs.data());
}

mesh::Degrees degrees_of(const Cluster::JobEntry& job) {
  mesh::Degrees degrees;
  for (const auto& dim : job.mesh.dims) {
    std::int64_t* degree = degrees.find(dim.value.dim);
    MUSTER_ASSERT(degree != nullptr);  // the file's keys are the mesh's names
    *degree = dim.value.size;
  }
  return degrees;
}

std::vector<std::string> members_of(const Cluster::FlattenEntry& flatten) {
  std::vector<std::string> members;
  for (const auto& dim : flatten.dims) members.push_back(dim.value);
  return members;
}

// Devices that this release supports.
void check_devices(const Cluster& cluster, Diagnostics* diagnostics) {
  for (std::size_t i = 0; i < cluster.nodes.size(); ++i) {
    const auto& node = cluster.nodes[i];
    if (node.device_kind == Cluster::DeviceKind::kCuda)
      diagnostics->add(cluster.diagnostic(
          node.device_count.mark, fmt::format("nodes[{}].devices.kind", i),
          {"the engine of this release drives host devices only", "write kind: host, or auto", 0}));
  }
}

// Ranks of a job on each of its hosts: they fill the hosts in order. A single host takes them all.
std::vector<std::uint64_t> shares_of(const std::vector<Cluster::Host>& hosts, std::uint64_t ranks) {
  if (hosts.size() == 1) return {ranks};
  std::vector<std::uint64_t> shares;
  for (std::size_t h = 0; h < hosts.size() && ranks > 0; ++h) {
    shares.push_back(std::min<std::uint64_t>(ranks, hosts[h].devices));
    ranks -= shares.back();
  }
  return shares;
}

// The daemon's limits.
void check_limits(const Cluster& cluster, const ClusterPlan::Limits& limits, Diagnostics* diagnostics) {
  if (cluster.jobs.size() > limits.jobs_max) {
    const auto& first = cluster.jobs[limits.jobs_max].name;
    diagnostics->add(cluster.diagnostic(
        first.mark, first.path,
        {fmt::format("{} jobs, and limits.jobs_max is {}", cluster.jobs.size(), limits.jobs_max),
         "raise it, or name fewer", 0}));
  }
  const std::vector<Cluster::Host> hosts = cluster.hosts();
  for (const Cluster::JobEntry& job : cluster.jobs) {
    const std::uint64_t ranks = cluster.ranks(job);
    const auto complain = [&](std::string what, std::string hint) {
      diagnostics->add(cluster.diagnostic(job.ranks ? job.ranks->mark : job.name.mark,
                                          job.ranks ? job.ranks->path : job.name.path,
                                          {std::move(what), std::move(hint), 0}));
    };
    if (hosts.size() > 1 && ranks > cluster.devices()) {
      complain(fmt::format("job {} has {} ranks, and all hosts together {} devices", job.name.value, ranks,
                           cluster.devices()),
               "a job of several hosts has one rank on each device");
      continue;
    }
    const std::vector<std::uint64_t> shares = shares_of(hosts, ranks);
    if (shares.size() > control::kNodesMax)
      complain(fmt::format("job {} needs {} hosts", job.name.value, shares.size()),
               fmt::format("{} are possible", control::kNodesMax));
    const std::uint64_t most = *std::max_element(shares.begin(), shares.end());
    if (most <= limits.ranks_per_job_max) continue;
    complain(fmt::format("job {} has {} ranks{}, and limits.ranks_per_job_max is {}", job.name.value, most,
                         hosts.size() > 1 ? " on one host" : "", limits.ranks_per_job_max),
             most > kRanksOnNodeMax ? fmt::format("{} are possible on a node", kRanksOnNodeMax)
                                    : std::string("raise it, or name fewer"));
  }
}

// The ranks of a job as the host number `here` sees them; none if it has no rank there. The limits were
// checked.
std::optional<World> world_of(const std::vector<Cluster::Host>& hosts, std::uint64_t ranks,
                              std::size_t here) {
  const std::vector<std::uint64_t> shares = shares_of(hosts, ranks);
  if (here >= shares.size()) return std::nullopt;
  if (shares.size() == 1) return World(static_cast<std::uint32_t>(ranks));
  std::vector<std::string> names;
  std::vector<std::uint32_t> node_of;
  for (std::uint32_t h = 0; h < shares.size(); ++h) {
    names.push_back(hosts[h].name);
    node_of.insert(node_of.end(), static_cast<std::size_t>(shares[h]), h);
  }
  auto world = World::build(std::move(names), node_of, NodeIndex(static_cast<std::uint32_t>(here)));
  MUSTER_ASSERT(world.has_value());  // hosts are named once, and each has a rank
  return *std::move(world);
}

// The properties of a job that must be alike on all nodes.
std::string line_of(const control::JobSpec& spec, std::uint64_t ranks) {
  std::string line =
      fmt::format("job {}: {} ranks, mesh {}, claim {}, deadline {} ms, digests {}", spec.name, ranks,
                  spec.mesh, spec.claim == control::ClaimRule::kToken ? "token" : "owner",
                  spec.deadline / std::chrono::milliseconds(1), spec.digests);
  if (spec.reproducible) line += ", reproducible";
  for (const auto& [name, members] : spec.flatten)
    line += fmt::format(", {} of {}", name, fmt::join(members, " and "));
  return line;
}

Roster roster_of(const Cluster& cluster, const std::vector<Cluster::Host>& hosts, std::size_t here) {
  Roster roster;
  roster.cluster = cluster.name;
  roster.here = hosts[here].name;
  roster.network = cluster.network;
  roster.tie_breaker = cluster.tie_breaker;
  roster.configuration.push_back(fmt::format("port {}", cluster.port));
  if (!cluster.tie_breaker.empty())
    roster.configuration.push_back(fmt::format("tie breaker {}", cluster.tie_breaker));
  roster.configuration.push_back(
      fmt::format("network {}", cluster.network.empty() ? "none" : cluster.network));
  roster.configuration.push_back(
      fmt::format("link {} ns, {} bytes/us", cluster.link.trip_ns, cluster.link.bytes_per_us));
  for (const Cluster::Host& host : hosts) {
    roster.members.push_back({host.name, {host.address, cluster.port}});
    roster.configuration.push_back(fmt::format(
        "host {} at {} with {} devices{}", host.name, host.address, host.devices,
        host.interfaces.empty() ? "" : fmt::format(", interfaces {}", fmt::join(host.interfaces, " "))));
  }
  return roster;
}

}  // namespace

// A name may mean a loopback address on its own machine: then connections to peers say the address.
InterfaceRule interfaces_of(const Cluster& cluster, std::string_view here) {
  InterfaceRule rule;
  for (Cluster::Host& host : cluster.hosts()) {
    if (host.name != here) continue;
    if (IpAddress::parse(host.address)) rule.addresses.push_back(host.address);
    rule.patterns = std::move(host.interfaces);
    rule.setting = std::move(host.interfaces_key);
  }
  return rule;
}

tl::expected<mesh::Mesh, Diagnostic> mesh_of(const Cluster& cluster, const Cluster::JobEntry& job) {
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

tl::expected<ClusterPlan, config::Diagnostics> plan_of(const Cluster& cluster,
                                                       const control::JobSpec& defaults,
                                                       std::string_view here,
                                                       const ClusterPlan::Limits& limits) {
  Diagnostics diagnostics;
  check_devices(cluster, &diagnostics);
  check_limits(cluster, limits, &diagnostics);
  const std::vector<Cluster::Host> hosts = cluster.hosts();
  const auto own = std::find_if(hosts.begin(), hosts.end(),
                                [here](const Cluster::Host& host) { return host.name == here; });
  const std::size_t index = own == hosts.end() ? 0 : static_cast<std::size_t>(own - hosts.begin());
  ClusterPlan plan;
  if (hosts.size() > 1) plan.roster = roster_of(cluster, hosts, index);
  for (const Cluster::JobEntry& job : cluster.jobs) {
    auto mesh = mesh_of(cluster, job);
    if (!mesh) {
      diagnostics.add(std::move(mesh).error());
      continue;
    }
    control::JobSpec spec = defaults;
    spec.name = job.name.value;
    spec.mesh = mesh->degrees().canonical();
    for (const auto& flatten : job.mesh.flatten)
      spec.flatten.emplace_back(flatten.name.value, members_of(flatten));
    spec.claim =
        job.claim == config::ClaimRule::kToken ? control::ClaimRule::kToken : control::ClaimRule::kOwner;
    if (job.deadline) spec.deadline = *job.deadline;
    if (job.digests) spec.digests = *job.digests;
    spec.reproducible = job.reproducible;
    plan.roster.configuration.push_back(line_of(spec, cluster.ranks(job)));
    if (!diagnostics.empty()) continue;  // the shares of the hosts may not be good
    if (auto world = world_of(hosts, cluster.ranks(job), index)) {
      spec.world = *std::move(world);
      if (spec.world.nodes().size() > 1) {
        spec.network = cluster.network;
        spec.tie_breaker = cluster.tie_breaker;
      }
      plan.jobs.push_back(std::move(spec));
    }
  }
  if (!diagnostics.empty()) return tl::unexpected(std::move(diagnostics));
  return plan;
}

}  // namespace muster::supervisor
