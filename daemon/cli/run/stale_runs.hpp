// The directories of private daemons. Their names are random, and a killed run leaves its directory behind.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace muster::cli {

inline constexpr const char* kRunDirectoryPrefix = "muster-run-";

// A random number for a name. 0 if the system has none; a name that is in use already is then refused.
std::uint64_t chance_for_name();

// An unused path below `parent`. The daemon makes the directory under its lock, so a directory without a lock
// never belongs to a run that is just beginning.
std::string fresh_run_directory(const std::string& parent);

// Removes the directory with its sockets, if it is this user's and no daemon has its lock. Other files, links
// and other users' directories are not touched. True if it is gone.
bool remove_run_directory(const std::string& path);

// The directories of runs in `parent` that are this user's, stale or not.
std::vector<std::string> run_directories(const std::string& parent);
// The directories in which those of runs may lie, the best first.
std::vector<std::string> run_parents();
// Removes the stale directories in `parent`, at most kStaleRunsMax.
inline constexpr int kStaleRunsMax = 256;
void remove_stale_runs(const std::string& parent);

}  // namespace muster::cli
