// muster top: shows what the ranks and groups of a job do now. It reads counters in shared memory, so it
// works while the engine is stuck.
#pragma once

#include "daemon/cli/question.hpp"

#include <string>

namespace muster::cli {

struct TopOptions {
  double seconds = 1;  // between two looks
  bool once = false;   // two looks, one table
};

// Runs until q or a signal, unless `once`.
int run_top(const DaemonAddress& address, const std::string& job, const TopOptions& options, Output output);

}  // namespace muster::cli
