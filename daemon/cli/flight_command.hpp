// muster flight: writes what each rank of a job has run, for PyTorch's analyser and for people.
#pragma once

#include "daemon/cli/question.hpp"

#include <string>

namespace muster::cli {

// Where to write: one JSON file of all ranks, or a folder with one pickle a rank (rank_0 and so on), which
// `torchfrtrace` reads. One of them may be empty.
struct FlightPaths {
  std::string file;
  std::string folder;
};

int run_flight(const DaemonAddress& address, const std::string& job, const FlightPaths& paths, Output output);

// JSON as a pickle of protocol 2: None, bool, int, float, str, list, dict. Source of the opcodes: CPython,
// Lib/pickle.py.
std::string pickled(const Json& value);

}  // namespace muster::cli
