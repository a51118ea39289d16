// Turns a cluster file into the jobs of this node. It checks what the file's parser cannot: whether the
// degrees multiply to the world, what a flattened dim may be called, and what this release can run.
#pragma once

#include "daemon/config/cluster.hpp"
#include "daemon/control/job.hpp"
#include "scheduler/mesh/mesh.hpp"

#include <vector>

namespace muster::supervisor {

// The mesh of a job in its world. A diagnostic names the line.
tl::expected<mesh::Mesh, config::Diagnostic> mesh_of(const config::Cluster& cluster,
                                                     const config::JobEntry& job);

// Limits on what a file may ask for (limits.*).
struct ClusterLimits {
  std::uint32_t jobs_max = 65536;
  std::uint32_t ranks_per_job_max = control::kWorldMax;
};
// The jobs as an engine must know them, on one node with host devices; or every fault that parse_cluster()
// cannot see, as `muster config check` reports it too. `defaults` fills in what the file leaves out, the
// owner included.
config::Parsed<std::vector<control::JobSpec>> jobs_of(const config::Cluster& cluster,
                                                      const control::JobSpec& defaults,
                                                      const ClusterLimits& limits = {});

}  // namespace muster::supervisor
