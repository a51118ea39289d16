// muster hang: who waits for whom in a job, and whose fault it is.
#pragma once

#include "daemon/cli/question.hpp"

#include <string>

namespace muster::cli {

// The verdict words and what each says, as the command's help ends.
extern const char kVerdictWords[];

// kUnhealthy if something hangs, just now.
int run_hang(const DaemonAddress& address, const std::string& job, Output output);

}  // namespace muster::cli
