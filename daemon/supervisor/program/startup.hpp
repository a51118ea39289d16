// Turns files, environment and flags into the Options of a Supervisor.
#pragma once

#include "daemon/config/settings.hpp"
#include "daemon/supervisor/program/supervisor.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace muster::supervisor {

inline constexpr const char* kDefaultConfig = "/etc/muster/musterd.yaml";

struct Sources {
  enum class ConfigFile : std::uint8_t { kGiven, kDefaultIfThere, kNone };
  ConfigFile kind = ConfigFile::kDefaultIfThere;
  std::string path;  // kGiven
  std::vector<config::Inputs::Flag> flags;
  std::vector<std::string> environment;  // "NAME=value"
};

// All settings with their origins. A file must belong to root or to this user. kConfig carries every fault,
// one place a line; kNotFound and kDenied name the file.
Result<config::Resolved> load_settings(const Sources& sources);

// The socket's group, the jobs and the roster of the cluster file, and all limits; not the functions of
// Options, except how credentials are read. kConfig as above; kNotFound for an unknown group.
Result<Options> options_of(const config::Settings& settings);

// Leaves out the other nodes, and the jobs that need them: the daemon of one run is nobody's peer.
void stand_alone(Options& options);

// kConfig if reports of passed deadlines have no directory. A daemon starts all the same: a predecessor's
// jobs matter more. Whether a job's user may write there, its engine finds out.
Status check_reports_directory(const config::Settings& settings);

// Sets level and format of the log, for this process and, through the environment, for its engines.
void apply_log(const config::Settings& settings);

// By /proc a program finds what is installed beside it. kNoResource if it is not mounted.
Status check_proc();

// The engine that musterd starts, and the musterd that `muster run` starts: beside the calling program, as in
// a build tree, or else in the place of the installation.
std::string engine_program();
std::string daemon_program();
// Where the modules of networks are (transport::open_network).
std::string networks_folder();

}  // namespace muster::supervisor
