// The directories of private daemons: each is named by chance, and whoever was killed leaves his behind.
#pragma once

#include <string>

namespace muster::cli {

inline constexpr const char* kRunDirectoryPrefix = "muster-run-";
inline constexpr const char* kRunSocket = "musterd.sock";

// A path below `parent` that nobody has yet. It is the daemon that makes it, under its lock: so none that is
// there without one belongs to a run that is just beginning.
std::string fresh_run_directory(const std::string& parent);

// Removes it with the socket in it, if it is this user's and no daemon has its lock. Nothing else in it, no
// link and nobody else's directory is touched.
void remove_run_directory(const std::string& path);

// All of `parent` that are so, kStaleRunsMax of them at most.
inline constexpr int kStaleRunsMax = 256;
void remove_stale_runs(const std::string& parent);

}  // namespace muster::cli
