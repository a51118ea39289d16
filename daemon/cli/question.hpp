// One question to the daemon: connect, ask, wait for the answer, leave.
#pragma once

#include "daemon/cli/outcome.hpp"
#include "daemon/control/packet.hpp"

#include <string>
#include <vector>

namespace muster::cli {

struct Door {
  std::string endpoint;
  Nanos timeout = std::chrono::seconds(10);
};

struct Answer {
  Json result;
  std::vector<shm::Descriptor> descriptors;
};

// kUnreachable if nobody listens or this user may not connect, kTimedOut without an answer in time; else as
// the daemon's status says.
Outcome<Answer> ask(const Door& door, const Json& command);

// Why there was no connection, as the user must read it.
Trouble unreachable(const Status& status);
// An answer that has come, as a result or as trouble.
Outcome<Answer> answer_of(Result<control::Packet> packet);

}  // namespace muster::cli
