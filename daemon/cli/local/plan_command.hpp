// `muster plan`: how collectives are carried out. It needs no daemon, but asks one for the costs of their
// parts.
#pragma once

#include "daemon/cli/question.hpp"

#include <cstdint>
#include <string>

namespace muster::cli {

struct PlanQuestion {
  std::string op;             // "all_reduce"
  bool sized = false;         // dtype or count was given
  std::string dtype = "f32";  // "bf16"
  std::int64_t count = -1;    // elements, as muster_collective.count; -1: a table over sizes
  std::int64_t ranks = 0;     // of the group
  std::int64_t world = 0;     // ranks of the job on the node; 0: as many as in the group
  std::int64_t cores = 0;     // granted to the job; 0: those of this machine
  bool shared = false;        // the target is one node-shared buffer
  std::int64_t nodes = 1;     // over which the members are spread, as many on each
  std::string config;         // a cluster file, which has the costs of the links between nodes
};

// Which path and algorithm a collective takes, and what it should cost. The rule is a pure function
// (api/base/collective/path.hpp).
int run_plan_explain(const PlanQuestion& question, const DaemonAddress& daemon, Output output);

// Measures the costs of this node, as the first job does, and prints them as lines for musterd.yaml.
int run_plan_costs(Output output);

}  // namespace muster::cli
