// The directories of private daemons: each is named by chance, and whoever was killed leaves his behind.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace muster::cli {

inline constexpr const char* kRunDirectoryPrefix = "muster-run-";
inline constexpr const char* kRunSocket = "musterd.sock";

// Chance for a name. 0 where the system has none to give: then whoever has that name already refuses the
// other.
std::uint64_t chance_for_name();

// A path below `parent` that nobody has yet. It is the daemon that makes it, under its lock: so none that is
// there without one belongs to a run that is just beginning.
std::string fresh_run_directory(const std::string& parent);

// Removes it with the socket in it, if it is this user's and no daemon has its lock. Nothing else in it, no
// link and nobody else's directory is touched. Whether it is gone.
bool remove_run_directory(const std::string& path);

// Where directories of runs may lie, the best first.
std::vector<std::string> run_parents();
// Removes all of `parent` that are so, kStaleRunsMax of them at most.
inline constexpr int kStaleRunsMax = 256;
void remove_stale_runs(const std::string& parent);

}  // namespace muster::cli
