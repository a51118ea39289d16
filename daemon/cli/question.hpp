// One question to the daemon: connect, ask, wait for the answer, leave.
#pragma once

#include "daemon/cli/attention.hpp"
#include "daemon/cli/outcome.hpp"
#include "daemon/control/packet.hpp"

#include <chrono>
#include <string>
#include <vector>

namespace muster::cli {

// The daemon that is asked, and the time limit.
struct DaemonAddress {
  std::string endpoint;  // api/shm/endpoint.hpp
  Nanos timeout = std::chrono::seconds(10);
  std::string job_key = {};  // shown with each command; empty: none

  Json with_key(Json command) const;
  // The option that a command in a message needs to reach this daemon, as shm::endpoint_option(). It is there
  // too if MUSTER_ENDPOINT may name another.
  std::string option() const;
};

struct DaemonAnswer {
  Json result;
  std::vector<shm::Descriptor> descriptors;
};

// kUnreachable if nobody listens or this user may not connect; kTimedOut without an answer in time; else the
// daemon's own status. If the daemon is replaced meanwhile, a question is asked again; a command that changes
// something fails with kFailed.
//
// With `attention`, the user can end the wait: then its exit code, and no text.
OrTrouble<DaemonAnswer> ask(const DaemonAddress& address, const Json& command,
                            Attention* attention = nullptr);
// Sends a command to the daemon, and waits for no answer.
void tell(const DaemonAddress& address, const Json& command);

// The jobs in an answer to `status` that are not ending. Throws Json::exception.
std::vector<std::string> living_jobs(const Json& status);
// The job of that name; if `name` is empty, the only job that is not ending. kNoObject if there is none,
// kUsage with their names if there are several. It asks no engine, so it works while an engine is stuck.
OrTrouble<std::string> named_or_only_job(const DaemonAddress& address, const std::string& name);

// Whether a command may be carried out twice: it only asks, or the second time changes nothing.
bool may_repeat(const Json& command);
// The message for a command whose answer was lost.
Trouble lost_in_the_middle(const DaemonAddress& address, const Json& command);

// Connects to the daemon at its control socket if this user may, else at the ranks' socket. As
// shm::connect_to().
Result<shm::Descriptor> connect_to_daemon(const DaemonAddress& address, Instant deadline, const Clock& clock);

// How often a connection is tried before the daemon counts as gone, and the pause between.
inline constexpr int kConnectsMax = 200;
inline constexpr Nanos kConnectPause = std::chrono::milliseconds(5);

// Why there was no connection, in words for the user.
Trouble unreachable(const Status& status);
// An answer as a result or as trouble.
OrTrouble<DaemonAnswer> answer_of(Result<control::Packet> packet);

}  // namespace muster::cli
