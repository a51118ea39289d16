#include "daemon/cli/private_daemon.hpp"

#include "daemon/supervisor/startup.hpp"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>

namespace muster::cli {
namespace {

constexpr std::int64_t kDefaultSessions = 256;  // limits.sessions_max

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

}  // namespace

Result<std::unique_ptr<PrivateDaemon>> PrivateDaemon::start(const Options& options) {
  MUSTER_ASSIGN_OR_RETURN(std::string directory, make_directory());
  std::unique_ptr<PrivateDaemon> daemon(new PrivateDaemon(std::move(directory)));
  daemon->endpoint_ = daemon->directory_ + "/musterd.sock";
  ChildOptions child;
  child.arguments = {supervisor::program_beside("musterd", "../sbin"),
                     "--transient",
                     "--socket",
                     daemon->endpoint_,
                     "--set",
                     "node.runtime_directory=" + daemon->directory_,
                     "--set",
                     "node.socket_mode=0600"};
  if (!options.config.empty()) child.arguments.insert(child.arguments.end(), {"--config", options.config});
  if (options.ranks > kDefaultSessions)
    child.arguments.insert(child.arguments.end(),
                           {"--set", fmt::format("limits.sessions_max={}", options.ranks)});
  child.environment = options.environment;
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
