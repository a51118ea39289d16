// Who is at the other end of a Unix socket, as the kernel says.
//
// The credentials are those of the process that called connect(): a socket passed on carries the identity of
// its connector. The pidfd ties the session to that process, whatever happens to its number.
#pragma once

#include "api/base/result.hpp"
#include "api/shm/descriptor.hpp"

#include <sys/types.h>

namespace muster::shm {

struct PeerIdentity {
  pid_t pid = 0;
  uid_t uid = 0;
  gid_t gid = 0;
  Descriptor pidfd;  // readable once the process has ended
};

// Where the pidfd comes from. SO_PEERPIDFD (Linux 6.5) is free of races; before that the process is looked up
// by its number and the connection must still stand afterwards, so that the number cannot have passed to
// another.
enum class PidfdSource { kBest, kSocket, kNumber };

// Errors: STALE (the peer has ended or hung up), UNSUPPORTED (kSocket on an older kernel), NO_RESOURCE,
// PROTOCOL (no connected Unix socket).
Result<PeerIdentity> peer_identity(const Descriptor& socket, PidfdSource source = PidfdSource::kBest);

// True once the process behind a pidfd has ended.
bool has_ended(const Descriptor& pidfd);

}  // namespace muster::shm
