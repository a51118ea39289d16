// `muster upgrade`: replaces the running musterd by another; jobs and ranks go on.
#pragma once

#include "daemon/cli/question.hpp"

#include <string>

namespace muster::cli {

// An empty `program` is the file from which the daemon was started, as it is now.
int run_upgrade(const DaemonAddress& address, const std::string& program, Output output);

}  // namespace muster::cli
