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

bool is_of_packets(const shm::Descriptor& socket) {
  return option_of(socket, SO_DOMAIN) == AF_UNIX && option_of(socket, SO_TYPE) == SOCK_SEQPACKET;
}

}  // namespace

bool is_listening(const shm::Descriptor& socket) {
  return is_of_packets(socket) && option_of(socket, SO_ACCEPTCONN) == 1;
}

bool is_connected(const shm::Descriptor& socket) {
  sockaddr_un peer{};
  socklen_t bytes = sizeof peer;
  return is_of_packets(socket) && getpeername(socket.get(), reinterpret_cast<sockaddr*>(&peer), &bytes) == 0;
}

}  // namespace muster::supervisor
