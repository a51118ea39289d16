// Contestants: the measured implementations, their ways, and the command line that starts each.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace muster::bench {

// Where programs of this build lie, and the folder of this run.
struct Places {
  std::filesystem::path programs;  // muster, muster-bench
  std::filesystem::path peers;
  std::filesystem::path run;  // empty at the start of the run, gone at its end
  int cores = 1;
};

// One way of running one implementation. The table shows a peer's best way for each cell.
struct Way {
  std::string contender;
  std::string path;
};

const std::vector<std::string>& contender_names();  // muster first
std::vector<Way> ways_of(const std::string& contender);

// The missing program and how to get it; empty if nothing is missing.
std::string what_is_missing(const std::string& contender, const Places& places);

// The program and its arguments, up to those that select the measurements.
std::vector<std::string> command_of(const Way& way, int ranks, const Places& places);

// The argument by which this program learns that it is one of the ranks.
inline constexpr const char* kRankFlag = "--as-rank";

}  // namespace muster::bench
