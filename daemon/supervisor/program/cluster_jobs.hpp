// Turns a cluster file into the jobs and the roster of a node. It checks what the file's parser cannot:
// whether the degrees multiply to the world, what a flattened dim may be called, and what this release can
// run.
#pragma once

#include "api/base/mesh/mesh.hpp"
#include "daemon/config/cluster.hpp"
#include "daemon/control/job.hpp"
#include "daemon/supervisor/base/roster.hpp"

#include <cstdint>
#include <string_view>
#include <vector>

namespace muster::supervisor {

// The mesh of a job in its world. A diagnostic names the line.
tl::expected<mesh::Mesh, config::Diagnostic> mesh_of(const config::Cluster& cluster,
                                                     const config::Cluster::JobEntry& job);

// The file's rule for the interfaces of the host `here`.
InterfaceRule interfaces_of(const config::Cluster& cluster, std::string_view here);

struct ClusterPlan {
  // Limits on what a file may ask for (limits.*).
  struct Limits {
    std::uint32_t jobs_max = 65536;
    std::uint32_t ranks_per_job_max = control::kWorldMax;
  };
  std::vector<control::JobSpec> jobs;  // those with ranks on this node, as their engines must know them
  Roster roster;                       // without credentials; of one host: empty
};
// The plan for the node `here`, a host of the file; empty: its first host. Ranks fill the hosts in the order
// of the file, one for each device; on a single host they may be more. Or every fault that parse_cluster()
// cannot see, as `muster config check` reports it too. `defaults` fills in what the file leaves out, the
// owner included.
tl::expected<ClusterPlan, config::Diagnostics> plan_of(const config::Cluster& cluster,
                                                       const control::JobSpec& defaults,
                                                       std::string_view here = {},
                                                       const ClusterPlan::Limits& limits = {});

}  // namespace muster::supervisor
