// `muster run`: runs ranks on this machine, with the daemon that runs here or with a private one; or, as the
// head of several such runs, on the nodes of a cluster.
#pragma once

#include "daemon/cli/run/run_plan.hpp"

namespace muster::cli {

// Returns 0, the first failure's code, 128 + a signal, or a code of outcome.hpp. Elastic: 0 if the last rank
// to end succeeded, else the code of the first failure after the last success.
int run_ranks(const RunPlan::Options& options);

}  // namespace muster::cli
