#include "daemon/supervisor/base/socket_role.hpp"

#include <sys/socket.h>
#include <sys/un.h>

namespace muster::supervisor {
namespace {

int option_of(const shm::Descriptor& socket, int option) {
  int value = -1;
  socklen_t bytes = sizeof value;
  return getsockopt(socket.get(), SOL_SOCKET, option, &value, &bytes) == 0 ? value : -1;
}

}  // namespace

bool has_role(const shm::Descriptor& socket, SocketRole role) {
  if (option_of(socket, SO_DOMAIN) != AF_UNIX || option_of(socket, SO_TYPE) != SOCK_SEQPACKET) return false;
  if (role == SocketRole::kListens) return option_of(socket, SO_ACCEPTCONN) == 1;
  sockaddr_un peer{};
  socklen_t bytes = sizeof peer;
  return getpeername(socket.get(), reinterpret_cast<sockaddr*>(&peer), &bytes) == 0;
}

}  // namespace muster::supervisor
