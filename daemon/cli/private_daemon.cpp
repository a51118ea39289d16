#include "daemon/cli/private_daemon.hpp"

#include "daemon/supervisor/descriptor_limit.hpp"
#include "daemon/supervisor/startup.hpp"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include <sys/resource.h>

namespace muster::cli {
namespace {

Result<std::string> make_directory() {
  std::vector<std::string> parents;
  if (const char* runtime = std::getenv("XDG_RUNTIME_DIR")) parents.emplace_back(runtime);
  parents.emplace_back("/tmp");
  int error = 0;
  for (const std::string& parent : parents) {
    std::string path = parent + "/muster-XXXXXX";
    if (mkdtemp(path.data()) != nullptr) return path;  // mode 0700
    error = errno;
  }
  return fail(Code::kNoResource,
              "no directory for a private daemon can be made in {}: {}; set XDG_RUNTIME_DIR", parents.back(),
              std::strerror(error));
}

bool sets(const std::vector<std::string>& environment, const std::string& name) {
  return std::any_of(environment.begin(), environment.end(),
                     [&](const std::string& entry) { return entry.starts_with(name + "="); });
}

// What is said about their number stands, unless it is too little: ranks may make jobs of their own there.
struct Room {
  std::uint32_t sessions = 0;
  std::uint32_t ranks_per_job = 0;
};

Result<Room> room_for(const PrivateDaemon::Options& options) {
  supervisor::Sources sources;
  sources.kind = options.config.empty() ? supervisor::ConfigFile::kNone : supervisor::ConfigFile::kGiven;
  sources.path = options.config;
  sources.environment = options.environment;
  MUSTER_ASSIGN_OR_RETURN(const config::Resolved said, supervisor::load_settings(sources));
  const auto ranks = static_cast<std::uint32_t>(options.ranks);
  const auto& limits = said.settings.limits;
  return Room{std::max(limits.sessions_max, ranks), std::max(limits.ranks_per_job_max, ranks)};
}

// Before the daemon finds it out, because only here the shell's remedy is known to be the right one.
Status check_descriptors(std::uint32_t sessions) {
  supervisor::Options limits;
  limits.sessions_max = sessions;
  const std::uint64_t needed = supervisor::descriptors_needed(limits);
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_max >= needed) return {};
  return failure(Code::kNoResource,
                 "the open-files limit is {}, and a private daemon with room for {} ranks needs {}; "
                 "ulimit -n {}",
                 limit.rlim_max, sessions, needed, needed);
}

}  // namespace

Result<std::unique_ptr<PrivateDaemon>> PrivateDaemon::start(const Options& options) {
  // Settings that cannot be read are the daemon's to complain of, as it does for everybody.
  const auto room = room_for(options);
  if (room) MUSTER_RETURN_IF_ERROR(check_descriptors(room->sessions));
  MUSTER_ASSIGN_OR_RETURN(std::string directory, make_directory());
  std::unique_ptr<PrivateDaemon> daemon(new PrivateDaemon(std::move(directory)));
  daemon->endpoint_ = daemon->directory_ + "/musterd.sock";
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
  if (room)
    child.arguments.insert(child.arguments.end(),
                           {"--set", fmt::format("limits.sessions_max={}", room->sessions), "--set",
                            fmt::format("limits.ranks_per_job_max={}", room->ranks_per_job)});
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
  std::error_code ignored;  // the daemon may have removed it
  std::filesystem::remove_all(directory_, ignored);
}

}  // namespace muster::cli
