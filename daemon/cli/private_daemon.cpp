#include "daemon/cli/private_daemon.hpp"

#include "daemon/cli/stale_runs.hpp"
#include "daemon/supervisor/descriptor_limit.hpp"
#include "daemon/supervisor/startup.hpp"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>

#include <sys/resource.h>
#include <unistd.h>

namespace muster::cli {
namespace {

// Where the daemon is to make its directory. What killed runs have left is removed on the way.
Result<std::string> choose_directory() {
  std::vector<std::string> parents;
  // The basedir specification has a relative path ignored; a socket's path has 107 bytes.
  constexpr std::size_t kParentMax = 64;
  const char* runtime = std::getenv("XDG_RUNTIME_DIR");
  if (runtime != nullptr && *runtime == '/' && std::strlen(runtime) <= kParentMax)
    parents.emplace_back(runtime);
  parents.emplace_back("/tmp");
  std::string chosen;
  int error = 0;
  for (const std::string& parent : parents) {
    remove_stale_runs(parent);
    if (access(parent.c_str(), W_OK | X_OK) == 0 && chosen.empty()) chosen = fresh_run_directory(parent);
    error = errno;
  }
  if (!chosen.empty()) return chosen;
  return fail(Code::kNoResource,
              "no directory for a private daemon can be made in {}: {}; set XDG_RUNTIME_DIR", parents.back(),
              std::strerror(error));
}

bool sets(const std::vector<std::string>& environment, const std::string& name) {
  return std::any_of(environment.begin(), environment.end(),
                     [&](const std::string& entry) { return entry.starts_with(name + "="); });
}

// The daemon's; of them those on which its descriptors depend, and ranks_per_job_max.
using Limits = supervisor::Options;

// How many descriptors a process of this user may have open at most.
std::uint64_t descriptors_max() {
  rlimit limit{};
  return getrlimit(RLIMIT_NOFILE, &limit) == 0 ? limit.rlim_max : RLIM_INFINITY;
}

// Makes `limit`, one of `limits`, as small as the descriptors demand, and no smaller than `least`.
void lower(std::uint32_t& limit, std::uint32_t least, const Limits& limits) {
  const std::uint64_t most = descriptors_max();
  while (limit > least && supervisor::descriptors_needed(limits) > most) --limit;
}

// What is said about them stands, unless it is too little for the ranks. What nobody has said leaves them
// room for jobs of their own, as far as descriptors last.
Result<Limits> limits_for(const PrivateDaemon::Options& options) {
  supervisor::Sources sources;
  sources.kind = options.config.empty() ? supervisor::ConfigFile::kNone : supervisor::ConfigFile::kGiven;
  sources.path = options.config;
  sources.environment = options.environment;
  MUSTER_ASSIGN_OR_RETURN(const config::Resolved said, supervisor::load_settings(sources));
  const auto unsaid = [&said](std::string_view key) {
    return std::any_of(said.in_force.begin(), said.in_force.end(), [key](const config::InForce& each) {
      return each.key == key && each.origin.kind == config::Origin::Kind::kDefault;
    });
  };
  const auto ranks = static_cast<std::uint32_t>(options.ranks);
  Limits limits;
  limits.jobs_max = said.settings.limits.jobs_max;
  limits.sessions_max = std::max(said.settings.limits.sessions_max, ranks);
  limits.ranks_per_job_max = std::max(said.settings.limits.ranks_per_job_max, ranks);
  if (unsaid("limits.sessions_max")) lower(limits.sessions_max, ranks, limits);
  if (unsaid("limits.jobs_max")) lower(limits.jobs_max, 1, limits);
  return limits;
}

// Before the daemon finds it out, because only here the remedies are known to be the right ones.
Status check_descriptors(const Limits& limits, std::uint32_t ranks) {
  const std::uint64_t needed = supervisor::descriptors_needed(limits);
  const std::uint64_t most = descriptors_max();
  if (needed <= most) return {};
  Limits fitting = limits;
  lower(fitting.sessions_max, ranks, fitting);
  lower(fitting.jobs_max, 1, fitting);
  std::string remedy;
  if (supervisor::descriptors_needed(fitting) <= most) {
    if (fitting.sessions_max < limits.sessions_max)
      remedy += fmt::format("MUSTER_SET_limits__sessions_max={} ", fitting.sessions_max);
    if (fitting.jobs_max < limits.jobs_max)
      remedy += fmt::format("MUSTER_SET_limits__jobs_max={} ", fitting.jobs_max);
    remedy = "set " + remedy + "in the environment, or ";
  }
  return failure(Code::kNoResource,
                 "the open-files limit is {}, and a private daemon with limits.sessions_max={} and "
                 "limits.jobs_max={} needs {}; {}raise it as root (ulimit -n {})",
                 most, limits.sessions_max, limits.jobs_max, needed, remedy, needed);
}

}  // namespace

Result<std::unique_ptr<PrivateDaemon>> PrivateDaemon::start(const Options& options) {
  // Settings that cannot be read are the daemon's to complain of, as it does for everybody.
  const auto limits = limits_for(options);
  if (limits) MUSTER_RETURN_IF_ERROR(check_descriptors(*limits, static_cast<std::uint32_t>(options.ranks)));
  MUSTER_ASSIGN_OR_RETURN(std::string directory, choose_directory());
  std::unique_ptr<PrivateDaemon> daemon(new PrivateDaemon(std::move(directory)));
  daemon->endpoint_ = daemon->directory_ + "/" + kRunSocket;
  ChildOptions child;
  child.arguments = {supervisor::daemon_program(),
                     "--transient",
                     "--socket",
                     daemon->endpoint_,
                     "--set",
                     "node.runtime_directory=" + daemon->directory_,
                     "--set",
                     "node.socket_mode=0600"};
  if (!options.config.empty()) child.arguments.insert(child.arguments.end(), {"--config", options.config});
  if (limits)
    child.arguments.insert(child.arguments.end(),
                           {"--set", fmt::format("limits.jobs_max={}", limits->jobs_max), "--set",
                            fmt::format("limits.sessions_max={}", limits->sessions_max), "--set",
                            fmt::format("limits.ranks_per_job_max={}", limits->ranks_per_job_max)});
  // What keeps descriptors for somebody else would keep engines alive after their run.
  for (const std::string& entry : options.environment)
    if (!entry.starts_with("NOTIFY_SOCKET=")) child.environment.push_back(entry);
  // The ranks have the terminal; what they print should not drown in news of the daemon.
  if (options.config.empty() && !sets(child.environment, "MUSTER_SET_log__level"))
    child.environment.emplace_back("MUSTER_SET_log__level=warning");
  child.death_signal = SIGTERM;
  MUSTER_ASSIGN_OR_RETURN(Child started, Child::spawn(child));
  daemon->child_ = std::make_unique<Child>(std::move(started));
  return daemon;
}

PrivateDaemon::~PrivateDaemon() {
  child_.reset();
  remove_run_directory(directory_);  // of a daemon that was killed
}

}  // namespace muster::cli
