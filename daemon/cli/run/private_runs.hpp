// The daemons of this user's private runs, for commands that ask a daemon and name none.
#pragma once

#include "daemon/cli/question.hpp"

#include <string>
#include <vector>

namespace muster::cli {

struct PrivateRun {
  std::string endpoint;           // the daemon's directory
  std::vector<std::string> jobs;  // that are not ending; none: the run begins, or its daemon does not answer
};

inline constexpr std::size_t kPrivateRunsMax = 64;

// Those of this user below `parents` whose daemons take connections, at most kPrivateRunsMax. Each has a
// second for its answer.
std::vector<PrivateRun> private_runs(const std::vector<std::string>& parents);

// The endpoint of the run that has the job; if `job` is empty, of the only run. kUsage if there are several,
// with what names each; kUnreachable if there is none: `absence` says what else was looked for.
OrTrouble<std::string> endpoint_of_run(const std::vector<PrivateRun>& runs, const std::string& job,
                                       const std::string& absence);

// `address` if a daemon answers there, else that of a private run. One that does not have the named job gives
// way to a private run that has it.
OrTrouble<DaemonAddress> daemon_to_ask(const DaemonAddress& address, const std::string& job,
                                       const std::vector<std::string>& parents);

}  // namespace muster::cli
