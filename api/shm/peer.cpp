#include "api/shm/peer.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include <poll.h>
#include <sys/socket.h>
#include <sys/syscall.h>

#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD 77  // Linux 6.5; older headers lack the name
#endif

namespace muster::shm {
namespace {

bool hung_up(const Descriptor& socket) {
  pollfd entry{.fd = socket.get(), .events = 0, .revents = 0};
  return poll(&entry, 1, 0) != 0;
}

Result<Descriptor> pidfd_from_socket(const Descriptor& socket, pid_t pid) {
  int fd = -1;
  socklen_t bytes = sizeof fd;
  if (getsockopt(socket.get(), SOL_SOCKET, SO_PEERPIDFD, &fd, &bytes) == 0) return Descriptor(fd);
  switch (errno) {
    case ENOPROTOOPT:
      return fail(Code::kUnsupported, "this kernel has no SO_PEERPIDFD; it came with Linux 6.5");
    case EMFILE:
    case ENFILE:
      return fail(Code::kNoResource, "SO_PEERPIDFD: {}; raise RLIMIT_NOFILE", std::strerror(errno));
    case ENODATA:
      return fail(Code::kProtocol, "the socket has no peer");
    default:
      return fail(Code::kStale, "process {} at the other end has ended ({})", pid, std::strerror(errno));
  }
}

Status not_visible() {
  return failure(
      Code::kDenied,
      "the client is in a process namespace that the daemon does not see, and this kernel gives no "
      "other handle on it (Linux 6.5 does); start the daemon's container with --pid host, or with "
      "hostPID: true in Kubernetes");
}

Result<Descriptor> pidfd_from_number(const Descriptor& socket, pid_t pid) {
  Descriptor pidfd(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
  if (!pidfd.valid()) {
    const int error = errno;
    if (error == EMFILE || error == ENFILE)
      return fail(Code::kNoResource, "pidfd_open: {}; raise RLIMIT_NOFILE", std::strerror(error));
    return fail(Code::kStale, "process {} at the other end has ended ({})", pid, std::strerror(error));
  }
  if (hung_up(socket)) return fail(Code::kStale, "process {} at the other end has hung up", pid);
  return pidfd;
}

Result<Descriptor> peer_pidfd(const Descriptor& socket, pid_t pid, PeerIdentity::Source source) {
  const bool visible = pid > 0;
  if (source == PeerIdentity::Source::kNumber)
    return visible ? pidfd_from_number(socket, pid) : fail(not_visible());
  Result<Descriptor> pidfd = pidfd_from_socket(socket, pid);
  const bool older = !pidfd && pidfd.error().code() == Code::kUnsupported;
  if (older && source == PeerIdentity::Source::kBest)
    return visible ? pidfd_from_number(socket, pid) : fail(not_visible());
  return pidfd;
}

}  // namespace

bool has_ended(const Descriptor& pidfd) {
  pollfd entry{.fd = pidfd.get(), .events = POLLIN, .revents = 0};
  return poll(&entry, 1, 0) > 0 && (entry.revents & POLLIN) != 0;
}

Result<PeerIdentity> peer_identity(const Descriptor& socket, PeerIdentity::Source source) {
  ucred credentials{};
  socklen_t bytes = sizeof credentials;
  if (getsockopt(socket.get(), SOL_SOCKET, SO_PEERCRED, &credentials, &bytes) != 0)
    return fail(Code::kProtocol, "reading the credentials of the peer: {}", std::strerror(errno));
  PeerIdentity peer;
  peer.pid = std::max(credentials.pid, 0);
  peer.uid = credentials.uid;
  peer.gid = credentials.gid;
  MUSTER_ASSIGN_OR_RETURN(peer.pidfd, peer_pidfd(socket, peer.pid, source));
  return peer;
}

}  // namespace muster::shm
