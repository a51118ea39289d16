#include "tests/bench/overlap/wire.hpp"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace muster::bench {
namespace {

constexpr std::uint16_t kPort = 7999;  // the nodes are of this bench alone

int must(int result, const char* what) {
  if (result >= 0) return result;
  std::fprintf(stderr, "field_rank: %s: %s\n", what, std::strerror(errno));
  std::exit(EXIT_FAILURE);
}

// Bytes that were moved; 0 if the socket can move nothing now.
std::size_t moved(ssize_t result, const char* what) {
  if (result < 0 && (errno == EAGAIN || errno == EINTR)) return 0;
  return static_cast<std::size_t>(must(static_cast<int>(result), what));
}

sockaddr_in of(const std::string& address) {
  sockaddr_in made{};
  made.sin_family = AF_INET;
  made.sin_port = htons(kPort);
  if (inet_pton(AF_INET, address.c_str(), &made.sin_addr) != 1) {
    std::fprintf(stderr, "field_rank: %s is no address\n", address.c_str());
    std::exit(EXIT_FAILURE);
  }
  return made;
}

}  // namespace

Wire::Wire(int rank, const std::string& address) : rank_(rank), address_(address) {
  if (rank_ != 0) return;
  const sockaddr_in here = of(address_);
  const int on = 1;
  listening_ = must(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), "socket");
  must(setsockopt(listening_, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on), "setsockopt");
  must(bind(listening_, reinterpret_cast<const sockaddr*>(&here), sizeof here), "bind");
  must(listen(listening_, 1), "listen");
}

Wire::~Wire() {
  if (socket_ >= 0) close(socket_);
  if (listening_ >= 0) close(listening_);
}

void Wire::connect() {
  if (rank_ == 0) {
    socket_ = must(accept(listening_, nullptr, nullptr), "accept");
  } else {
    const sockaddr_in there = of(address_);
    socket_ = must(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), "socket");
    must(::connect(socket_, reinterpret_cast<const sockaddr*>(&there), sizeof there), "connect");
  }
  const int on = 1;
  must(setsockopt(socket_, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on), "setsockopt");
  must(fcntl(socket_, F_SETFL, O_NONBLOCK), "fcntl");
}

void Wire::exchange(std::size_t bytes) {
  if (sent_.size() < bytes) {
    sent_.resize(bytes);
    received_.resize(bytes);
  }
  std::size_t sent = 0, received = 0;
  while (sent < bytes || received < bytes) {
    if (sent < bytes) sent += moved(send(socket_, sent_.data() + sent, bytes - sent, MSG_NOSIGNAL), "send");
    if (received < bytes) {
      const ssize_t got = recv(socket_, received_.data() + received, bytes - received, 0);
      if (got == 0) {
        std::fprintf(stderr, "field_rank: the other rank is gone\n");
        std::exit(EXIT_FAILURE);
      }
      received += moved(got, "recv");
    }
    pollfd wanted{};
    wanted.fd = socket_;
    wanted.events = static_cast<short>((sent < bytes ? POLLOUT : 0) | (received < bytes ? POLLIN : 0));
    if (wanted.events != 0) must(poll(&wanted, 1, -1), "poll");
  }
}

}  // namespace muster::bench
