#include "daemon/control/link/tcp.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

namespace muster::control {
namespace {

constexpr int kBacklog = 128;

bool is_lack(int error) {
  return error == EMFILE || error == ENFILE || error == ENOBUFS || error == ENOMEM;
}

shm::Descriptor stream_socket(int family) {
  return shm::Descriptor(::socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
}

// Best effort: a kernel without an option is slower to notice, no more.
void tune(const shm::Descriptor& socket) {
  const int on = 1;
  const unsigned int undelivered = static_cast<unsigned int>(kUndeliveredMax / std::chrono::milliseconds(1));
  static_cast<void>(setsockopt(socket.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on));
  static_cast<void>(
      setsockopt(socket.get(), IPPROTO_TCP, TCP_USER_TIMEOUT, &undelivered, sizeof undelivered));
}

const sockaddr* raw(const SocketAddress& endpoint) {
  return reinterpret_cast<const sockaddr*>(&endpoint.address);
}

std::string text_of(const sockaddr_storage& address) {
  std::array<char, INET6_ADDRSTRLEN> host{};
  if (address.ss_family == AF_INET) {
    const auto& four = reinterpret_cast<const sockaddr_in&>(address);
    inet_ntop(AF_INET, &four.sin_addr, host.data(), host.size());
    return TcpAddress{host.data(), ntohs(four.sin_port)}.text();
  }
  const auto& six = reinterpret_cast<const sockaddr_in6&>(address);
  if (IN6_IS_ADDR_V4MAPPED(&six.sin6_addr))
    inet_ntop(AF_INET, &six.sin6_addr.s6_addr[12], host.data(), host.size());
  else
    inet_ntop(AF_INET6, &six.sin6_addr, host.data(), host.size());
  return TcpAddress{host.data(), ntohs(six.sin6_port)}.text();
}

// 0, or the error.
int listen_at(const shm::Descriptor& socket, const SocketAddress& endpoint) {
  const int on = 1;
  static_cast<void>(setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on));
  const bool listens =
      bind(socket.get(), raw(endpoint), endpoint.bytes) == 0 && listen(socket.get(), kBacklog) == 0;
  return listens ? 0 : errno;
}

}  // namespace

std::string TcpAddress::text() const {
  return host.find(':') == std::string::npos ? fmt::format("{}:{}", host, port)
                                             : fmt::format("[{}]:{}", host, port);
}

std::optional<SocketAddress> numeric(const TcpAddress& address) {
  SocketAddress endpoint;
  auto* four = reinterpret_cast<sockaddr_in*>(&endpoint.address);
  auto* six = reinterpret_cast<sockaddr_in6*>(&endpoint.address);
  if (inet_pton(AF_INET, address.host.c_str(), &four->sin_addr) == 1) {
    four->sin_family = AF_INET;
    four->sin_port = htons(address.port);
    endpoint.bytes = sizeof *four;
    return endpoint;
  }
  if (inet_pton(AF_INET6, address.host.c_str(), &six->sin6_addr) == 1) {
    six->sin6_family = AF_INET6;
    six->sin6_port = htons(address.port);
    endpoint.bytes = sizeof *six;
    return endpoint;
  }
  return std::nullopt;
}

Status socket_failure(Code otherwise, const std::string& what, int error) {
  return failure(is_lack(error) ? Code::kNoResource : otherwise, "{}: {}", what, std::strerror(error));
}

std::vector<SocketAddress> places_of(const TcpAddress& address) {
  if (const auto number = numeric(address)) return {*number};
  return {*numeric({"::", address.port}), *numeric({"0.0.0.0", address.port})};
}

// ---- listener ----------------------------------------------------------------------------------

Result<TcpListener> TcpListener::open(const TcpAddress& address) {
  int error = 0;
  for (const SocketAddress& place : places_of(address)) {
    shm::Descriptor socket = stream_socket(place.address.ss_family);
    error = socket.valid() ? listen_at(socket, place) : errno;
    if (error == 0) return TcpListener(std::move(socket));
    if (error != EAFNOSUPPORT && error != EADDRNOTAVAIL) break;
  }
  const Code code = error == EADDRINUSE ? Code::kDuplicate : Code::kNotFound;
  return fail(socket_failure(code, "listening at " + address.text(), error));
}

Result<TcpListener::PendingClient> TcpListener::accept() const {
  sockaddr_storage from{};
  socklen_t bytes = sizeof from;
  shm::Descriptor socket(
      accept4(socket_.get(), reinterpret_cast<sockaddr*>(&from), &bytes, SOCK_NONBLOCK | SOCK_CLOEXEC));
  if (!socket.valid()) return fail(socket_failure(Code::kPending, "no connection waits", errno));
  tune(socket);
  return PendingClient{std::move(socket), text_of(from)};
}

std::uint16_t TcpListener::port() const {
  sockaddr_storage own{};
  socklen_t bytes = sizeof own;
  getsockname(socket_.get(), reinterpret_cast<sockaddr*>(&own), &bytes);
  return ntohs(own.ss_family == AF_INET ? reinterpret_cast<const sockaddr_in&>(own).sin_port
                                        : reinterpret_cast<const sockaddr_in6&>(own).sin6_port);
}

// ---- dial --------------------------------------------------------------------------------------

TcpDial::TcpDial(Loop& loop, TcpAddress address, Nanos time, Reached reached)
    : loop_(loop), address_(std::move(address)), reached_(std::move(reached)) {
  timer_ = loop_.after(time, [this, time] {
    timer_ = 0;
    finish(fail(Code::kDaemonLost, "{}: no answer within {} ms", address_.text(),
                time / std::chrono::milliseconds(1)));
  });
  lookup_ = loop_.resolve(address_.host, address_.port, [this](Result<std::vector<SocketAddress>> found) {
    lookup_ = 0;
    if (!found) return finish(fail(found.error()));
    left_ = *std::move(found);
    std::reverse(left_.begin(), left_.end());
    next();
  });
}

TcpDial::~TcpDial() {
  for (const Loop::Watch watch : {timer_, watch_, lookup_}) loop_.unwatch(watch);
}

void TcpDial::next() {
  loop_.unwatch(std::exchange(watch_, 0));
  while (!left_.empty()) {
    const SocketAddress endpoint = left_.back();
    left_.pop_back();
    socket_ = stream_socket(endpoint.address.ss_family);
    const bool begun = socket_.valid() &&
                       (connect(socket_.get(), raw(endpoint), endpoint.bytes) == 0 || errno == EINPROGRESS);
    if (begun) {
      watch_ = loop_.watch_writable(socket_.get(), [this] { on_connected(); });
      return;
    }
    why_ = socket_failure(Code::kDaemonLost, address_.text(), errno);
  }
  finish(fail(why_));
}

void TcpDial::on_connected() {
  int error = 0;
  socklen_t bytes = sizeof error;
  if (getsockopt(socket_.get(), SOL_SOCKET, SO_ERROR, &error, &bytes) != 0) error = errno;
  if (error != 0) {
    why_ = socket_failure(Code::kDaemonLost, address_.text(), error);
    return next();
  }
  loop_.unwatch(std::exchange(watch_, 0));
  tune(socket_);
  finish(std::move(socket_));
}

void TcpDial::finish(Result<shm::Descriptor> result) {
  for (Loop::Watch* watch : {&timer_, &watch_, &lookup_}) loop_.unwatch(std::exchange(*watch, 0));
  const Reached reached = std::move(reached_);  // may destroy this
  reached(std::move(result));
}

}  // namespace muster::control
