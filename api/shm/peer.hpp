// The process at the other end of a Unix socket, as the kernel reports it.
//
// The credentials are those of the process that called connect(), also after the socket is passed on. The
// pidfd keeps referring to that process, even if its number is used again.
#pragma once

#include "api/base/result.hpp"
#include "api/shm/descriptor.hpp"

#include <sys/types.h>

namespace muster::shm {

struct PeerIdentity {
  // The source of the pidfd. SO_PEERPIDFD (Linux 6.5) has no race, and knows processes of any namespace. On
  // older kernels the process is opened by its number. The connection must still be open afterwards: then the
  // number cannot be another process's.
  enum class Source { kBest, kSocket, kNumber };

  pid_t pid = 0;  // 0: it is in a process namespace that this process does not see
  uid_t uid = 0;
  gid_t gid = 0;
  Descriptor pidfd;  // readable once the process has ended
};

// Errors: STALE (the peer has ended or hung up), UNSUPPORTED (kSocket on an older kernel), DENIED (an older
// kernel, and a peer that is not visible from here), NO_RESOURCE, PROTOCOL (no connected Unix socket).
Result<PeerIdentity> peer_identity(const Descriptor& socket,
                                   PeerIdentity::Source source = PeerIdentity::Source::kBest);

// True once the process behind a pidfd has ended.
bool has_ended(const Descriptor& pidfd);

}  // namespace muster::shm
