// From a cluster file to the jobs of this node. What the file alone cannot know is checked here: whether the
// degrees multiply to the world, what a flattened dim may be called, and what this release can run.
#pragma once

#include "daemon/config/cluster.hpp"
#include "daemon/control/job.hpp"
#include "scheduler/mesh/mesh.hpp"

#include <vector>

namespace muster::supervisor {

// The mesh of a job in its world. The complaint points at the line.
tl::expected<mesh::Mesh, config::Diagnostic> mesh_of(const config::Cluster& cluster,
                                                     const config::JobEntry& job);

// What the daemon lets a file ask for (limits.*).
struct ClusterLimits {
  std::uint32_t jobs_max = 65536;
  std::uint32_t ranks_per_job_max = control::kWorldMax;
};
// The jobs as an engine must know them, on one node with host devices; or all that is wrong beyond
// parse_cluster(), as `muster config check` says it too. `defaults` fills what the file leaves
// out, its owner included.
config::Parsed<std::vector<control::JobSpec>> jobs_of(const config::Cluster& cluster,
                                                      const control::JobSpec& defaults,
                                                      const ClusterLimits& limits = {});

}  // namespace muster::supervisor
