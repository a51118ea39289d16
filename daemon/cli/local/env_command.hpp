// `muster env`: says which rank this process would be, and why.
#pragma once

#include "api/base/bootstrap.hpp"
#include "daemon/cli/outcome.hpp"

namespace muster::cli {

// Prints every launcher in the order tried, what it left in the environment, and what was taken.
int run_env(const bootstrap::Lookup& lookup, Output output);

}  // namespace muster::cli
