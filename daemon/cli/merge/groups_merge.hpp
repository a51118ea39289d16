// The groups of a job, merged from its nodes' reports. Pure.
#pragma once

#include "daemon/cli/merge/node_reports.hpp"

#include <vector>

namespace muster::cli {

// {"hash", "total", "per_rank", "groups": [{"id", "name", "names", "ranks"}], "made": [{"name", "ranks"}],
// "unanswered"}. Groups of the mesh are the same on all nodes. A made group is known where it has members:
// the list has those of all nodes, each once. In a job of several nodes each group has "on": [{"node",
// "ranks": how many of its members}], and a made one "nodes": those that have it now. A report that cannot be
// read, or has other groups of the mesh than the first, gets a `why`.
Json merged_groups(std::vector<NodeReport>& reports);

}  // namespace muster::cli
