// `muster upgrade`: another musterd in the place of the one that runs; jobs and ranks go on.
#pragma once

#include "daemon/cli/question.hpp"

#include <string>

namespace muster::cli {

// `program` may be empty: the file that the daemon was started from, as it is now.
int run_upgrade(const DaemonAddress& address, const std::string& program, Output output);

}  // namespace muster::cli
