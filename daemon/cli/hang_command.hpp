// muster hang: who waits for whom in a job, and whose fault it is.
#pragma once

#include "daemon/cli/question.hpp"

#include <string>

namespace muster::cli {

// kUnhealthy if something hangs, just now.
int run_hang(const Door& door, const std::string& job, Output output);

}  // namespace muster::cli
