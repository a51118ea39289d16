// Rates of the ranks and groups of a node, between two looks at its counters.
#pragma once

#include "daemon/cli/outcome.hpp"
#include "daemon/control/job_look.hpp"

namespace muster::cli {

// {"interval_s", "engine_pid", "engine_silent_s", "engine_stuck", "ranks", "groups"}: rates by rank and by
// group. Pure.
Json rates(const control::JobLook& before, const control::JobLook& after);

}  // namespace muster::cli
