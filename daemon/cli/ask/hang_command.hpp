// muster hang: reports which ranks of a job wait for which, and the cause.
#pragma once

#include "daemon/cli/question.hpp"

#include <string>

namespace muster::cli {

// The verdicts and their meanings, for the end of the command's help.
extern const char kVerdictWords[];

// kUnhealthy if something hangs now.
int run_hang(const DaemonAddress& address, const std::string& job, Output output);

}  // namespace muster::cli
