// From files, environment and flags to the Options of a Supervisor: each setting to its place.
#pragma once

#include "daemon/config/settings.hpp"
#include "daemon/supervisor/supervisor.hpp"

#include <string>
#include <vector>

namespace muster::supervisor {

inline constexpr const char* kDefaultConfig = "/etc/muster/musterd.yaml";

enum class ConfigFile : std::uint8_t { kGiven, kDefaultIfThere, kNone };

struct Sources {
  ConfigFile kind = ConfigFile::kDefaultIfThere;
  std::string path;  // kGiven
  std::vector<config::Assignment> flags;
  std::vector<std::string> environment;  // "NAME=value"
};

// All settings with their origins. A file must belong to root or to this user. kConfig carries all that is
// wrong, one place a line; kNotFound and kDenied name the file.
Result<config::Resolved> load_settings(const Sources& sources);

// The socket's group, the jobs of the cluster file and all limits; not the functions of Options. kConfig as
// above; kNotFound for an unknown group.
Result<Options> options_of(const config::Settings& settings);

// Whether reports of passed deadlines have a place to go to: kConfig if not. A daemon starts all the same:
// jobs of a predecessor matter more. Whether a job's user may write there its engine finds out.
Status check_reports_directory(const config::Settings& settings);

// Level and format of the log, for this process and, through the environment, for its engines.
void apply_log(const config::Settings& settings);

// The engine that musterd starts, and the musterd that `muster run` starts: beside the program that asks, as
// in a build tree, or else where the installation has put it.
std::string engine_program();
std::string daemon_program();

}  // namespace muster::supervisor
