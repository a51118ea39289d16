// Attachment: the descriptors and facts that a rank gets from the daemon when it attaches.
#pragma once

#include "api/base/bootstrap.hpp"
#include "api/base/clock.hpp"
#include "api/base/result.hpp"
#include "api/shm/control.hpp"
#include "api/shm/segment.hpp"
#include "api/shm/socket.hpp"

#include <string>

namespace muster::client {

struct Attachment {
  shm::Descriptor socket;  // to the job's engine
  shm::Descriptor doorbell;
  shm::SubmissionView submission;
  shm::CompletionView completion;
  shm::Welcome welcome;
  std::string endpoint;  // of the daemon
  Nanos timeout;         // of each request over the socket
  // The rank's direct segment and the group page. Invalid in a job without the direct path.
  shm::Mapping direct;
  shm::Mapping groups;
};

// Sends Hello to the daemon at the identity's endpoint and maps what comes back. Tries again while a daemon
// that is being replaced drops the connection.
// Errors: BAD_ARGUMENT, DAEMON_LOST, PROTOCOL, VERSION, and the daemon's refusals.
Result<Attachment> attach(const bootstrap::LaunchedRank& identity, Nanos timeout);

}  // namespace muster::client
