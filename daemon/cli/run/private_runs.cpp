#include "daemon/cli/run/private_runs.hpp"

#include "api/shm/endpoint.hpp"
#include "api/shm/socket.hpp"
#include "daemon/cli/run/stale_runs.hpp"

#include <algorithm>
#include <optional>

#include <fmt/ranges.h>

namespace muster::cli {
namespace {

constexpr Nanos kAnswerTimeout = std::chrono::seconds(1);

// The jobs of a daemon that are not ending. Nothing: it does not answer, or not as expected.
std::optional<std::vector<std::string>> jobs_at(const DaemonAddress& address) {
  const auto answer = ask(address, {{"command", "status"}});
  if (!answer) return std::nullopt;
  try {
    return living_jobs(answer->result);
  } catch (const Json::exception&) {  // a daemon of another version
    return std::nullopt;
  }
}

bool has(const std::vector<std::string>& jobs, const std::string& job) {
  return std::find(jobs.begin(), jobs.end(), job) != jobs.end();
}

std::string line_of(const PrivateRun& run) {
  const std::string jobs =
      run.jobs.empty() ? "no job yet" : fmt::format("--job {}", fmt::join(run.jobs, ", "));
  return fmt::format("\n  --endpoint {}  ({})", run.endpoint, jobs);
}

}  // namespace

std::vector<PrivateRun> private_runs(const std::vector<std::string>& parents) {
  const SteadyClock clock;
  std::vector<PrivateRun> runs;
  for (const std::string& parent : parents)
    for (const std::string& directory : run_directories(parent)) {
      if (runs.size() == kPrivateRunsMax) return runs;
      const DaemonAddress address{directory, kAnswerTimeout};
      // A killed run may have left the folder.
      if (!connect_to_daemon(address, clock.now() + kAnswerTimeout, clock)) continue;
      runs.push_back({directory, jobs_at(address).value_or(std::vector<std::string>())});
    }
  return runs;
}

OrTrouble<std::string> endpoint_of_run(const std::vector<PrivateRun>& runs, const std::string& job,
                                       const std::string& absence) {
  std::vector<const PrivateRun*> fit;
  for (const PrivateRun& run : runs)
    if (job.empty() || has(run.jobs, job)) fit.push_back(&run);
  if (fit.size() == 1) return fit.front()->endpoint;
  if (fit.empty()) {
    std::string others;
    for (const PrivateRun& run : runs) others += line_of(run);
    return tl::unexpected(
        Trouble{kUnreachable, absence + (others.empty() ? "" : "\nThere are other private runs:" + others)});
  }
  std::string text = fmt::format("{} private runs of this user are on; say which:", fit.size());
  for (const PrivateRun* run : fit) text += line_of(*run);
  return tl::unexpected(Trouble{kUsage, text});
}

OrTrouble<DaemonAddress> daemon_to_ask(const DaemonAddress& address, const std::string& job,
                                       const std::vector<std::string>& parents) {
  const SteadyClock clock;
  const auto socket = connect_to_daemon(address, clock.now() + address.timeout, clock);
  const Code code = socket ? Code::kOk : socket.error().code();
  if (!socket && code != Code::kDaemonLost && code != Code::kDenied) return address;
  if (socket) {
    const auto jobs = job.empty() ? std::nullopt : jobs_at(address);
    if (!jobs || has(*jobs, job)) return address;
  }
  const std::string named = job.empty() ? "" : fmt::format(" with a job '{}'", job);
  const auto its = endpoint_of_run(
      private_runs(parents), job,
      fmt::format(
          "no daemon at {}: {}, and no private run of this user{} in {}; start musterd, or use muster run",
          address.endpoint, shm::text_of(shm::absence_at(shm::ranks_socket_at(address.endpoint))), named,
          fmt::join(parents, " or ")));
  // The daemon that is there, or refuses this user, says more.
  if (!its && code != Code::kDaemonLost && its.error().exit_code == kUnreachable) return address;
  if (!its) return tl::unexpected(its.error());
  DaemonAddress other = address;
  other.endpoint = *its;
  return other;
}

}  // namespace muster::cli
