#include "daemon/cli/run/private_daemon.hpp"

#include "api/base/bootstrap.hpp"
#include "api/shm/endpoint.hpp"
#include "daemon/cli/run/private_limits.hpp"
#include "daemon/cli/run/stale_runs.hpp"
#include "daemon/supervisor/program/startup.hpp"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>

#include <unistd.h>

namespace muster::cli {
namespace {

// The directory that the daemon is to make.
Result<std::string> choose_directory() {
  const std::vector<std::string> parents = run_parents();
  std::string refused;
  for (const std::string& parent : parents) {
    if (access(parent.c_str(), W_OK | X_OK) == 0) return fresh_run_directory(parent);
    refused += fmt::format("{}{}: {}", refused.empty() ? "" : ", nor in ", parent, std::strerror(errno));
  }
  return fail(Code::kNoResource,
              "no directory for a private daemon can be made in {}; have XDG_RUNTIME_DIR name a folder that "
              "this user may write to",
              refused);
}

bool sets(const std::vector<std::string>& environment, const std::string& name) {
  return std::any_of(environment.begin(), environment.end(),
                     [&](const std::string& entry) { return entry.starts_with(name + "="); });
}

}  // namespace

Result<std::unique_ptr<PrivateDaemon>> PrivateDaemon::start(const Options& options) {
  MUSTER_RETURN_IF_ERROR(supervisor::check_proc());
  const auto limits = private_limits(options.config, options.environment, options.ranks);
  MUSTER_ASSIGN_OR_RETURN(std::string directory, choose_directory());
  std::unique_ptr<PrivateDaemon> daemon(new PrivateDaemon(std::move(directory)));
  daemon->endpoint_ = shm::ranks_socket(daemon->directory_);
  Child::Options child;
  child.arguments = {supervisor::daemon_program(), "--transient", "--directory",
                     daemon->directory_,           "--set",       "node.directory_mode=0700"};
  if (!options.config.empty()) child.arguments.insert(child.arguments.end(), {"--config", options.config});
  if (limits)
    child.arguments.insert(child.arguments.end(),
                           {"--set", fmt::format("limits.jobs_max={}", limits->jobs_max), "--set",
                            fmt::format("limits.sessions_max={}", limits->sessions_max), "--set",
                            fmt::format("limits.ranks_per_job_max={}", limits->ranks_per_job_max)});
  // A manager that keeps descriptors would keep engines alive after their run.
  for (const std::string& entry : options.environment)
    if (!entry.starts_with("NOTIFY_SOCKET=")) child.environment.push_back(entry);
  // The ranks use the terminal; the daemon's messages should not bury their output.
  if (options.config.empty() && !sets(child.environment, "MUSTER_SET_log__level"))
    child.environment.emplace_back("MUSTER_SET_log__level=warning");
  child.death_signal = SIGTERM;
  MUSTER_ASSIGN_OR_RETURN(Child started, Child::spawn(child));
  daemon->child_ = std::make_unique<Child>(std::move(started));
  return daemon;
}

// A command finds a private daemon by the job, unless MUSTER_ENDPOINT names another daemon.
std::string how_to_ask(const std::string& job, const std::string& endpoint) {
  const auto usual = bootstrap::process_environment()(bootstrap::kEndpointVariable);
  return fmt::format(
      "muster run: on a private daemon; while it runs, `muster top{} --job {}` shows it, and so do status, "
      "hang and flight\n",
      usual && !usual->empty() ? shm::endpoint_option(endpoint) : "", job);
}

PrivateDaemon::~PrivateDaemon() {
  child_.reset();
  remove_run_directory(directory_);  // of a daemon that was killed
}

}  // namespace muster::cli
