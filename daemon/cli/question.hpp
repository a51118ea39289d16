// One question to the daemon: connect, ask, wait for the answer, leave.
#pragma once

#include "daemon/cli/attention.hpp"
#include "daemon/cli/outcome.hpp"
#include "daemon/control/packet.hpp"

#include <string>
#include <vector>

namespace muster::cli {

// Where a daemon is asked, and for how long.
struct DaemonAddress {
  std::string endpoint;
  Nanos timeout = std::chrono::seconds(10);
};

struct DaemonAnswer {
  Json result;
  std::vector<shm::Descriptor> descriptors;
};

// kUnreachable if nobody listens or this user may not connect, kTimedOut without an answer in time; else as
// the daemon's status says. Where the daemon is replaced by another in the middle, a question is asked again;
// for what changes something it is kFailed.
//
// With `attention` the wait for the answer ends when the user has had enough: its exit code, and no text.
OrTrouble<DaemonAnswer> ask(const DaemonAddress& address, const Json& command,
                            Attention* attention = nullptr);
// Says it to the daemon, and waits for no answer.
void tell(const DaemonAddress& address, const Json& command);

// The job of that name; if none is named, the only one there is that is not ending. kNoObject where there is
// none, kUsage with their names where there are several. Asks no engine, so it is answered also while one is
// stuck.
OrTrouble<std::string> named_or_only_job(const DaemonAddress& address, const std::string& name);

// Whether a command may be carried out twice: it asks, or the second time changes nothing more.
bool may_repeat(const Json& command);
// What is said of a command whose answer was lost.
Trouble lost_in_the_middle(const Json& command);

// How often a connection is made anew before the daemon counts as gone, and the pause between.
inline constexpr int kConnectsMax = 200;
inline constexpr Nanos kConnectPause = std::chrono::milliseconds(5);

// Why there was no connection, as the user must read it.
Trouble unreachable(const Status& status);
// An answer that has come, as a result or as trouble.
OrTrouble<DaemonAnswer> answer_of(Result<control::Packet> packet);

}  // namespace muster::cli
