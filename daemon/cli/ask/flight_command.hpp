// muster flight: shows what each rank of a job has run, or writes it, also for PyTorch's analyser.
#pragma once

#include "daemon/cli/question.hpp"

#include <cstdint>
#include <optional>
#include <string>

namespace muster::cli {

// Where to write: one JSON file of all ranks, or a folder with one pickle a rank (rank_0 and so on), which
// `torchfrtrace` reads. If both are empty, it is shown: as a table, or as JSON.
struct FlightPaths {
  std::string file;
  std::string folder;
  std::uint32_t last = 20;  // of the table: flight_table.hpp
};

// Why a place cannot be written.
std::optional<Trouble> fault_of(const FlightPaths& paths);
int run_flight(const DaemonAddress& address, const std::string& job, const FlightPaths& paths, Output output);

// JSON as a pickle of protocol 2: None, bool, int, float, str, list, dict. Source of the opcodes: CPython,
// Lib/pickle.py.
std::string pickled(const Json& value);

}  // namespace muster::cli
