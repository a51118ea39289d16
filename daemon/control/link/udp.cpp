#include "daemon/control/link/udp.hpp"

#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include <netinet/in.h>
#include <sys/socket.h>

namespace muster::control {
namespace {

constexpr std::array<std::uint8_t, 12> kMappedPrefix{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};

// The address as a socket of that family takes it: one of version 6 takes those of version 4 as mapped.
SocketAddress in_family(const SocketAddress& address, sa_family_t family) {
  if (address.address.ss_family == family) return address;
  SocketAddress other;
  other.address.ss_family = family;
  if (family == AF_INET6 && address.address.ss_family == AF_INET) {
    const auto& four = reinterpret_cast<const sockaddr_in&>(address.address);
    auto& six = reinterpret_cast<sockaddr_in6&>(other.address);
    six.sin6_port = four.sin_port;
    std::memcpy(six.sin6_addr.s6_addr, kMappedPrefix.data(), kMappedPrefix.size());
    std::memcpy(six.sin6_addr.s6_addr + kMappedPrefix.size(), &four.sin_addr, sizeof four.sin_addr);
    other.bytes = sizeof six;
  } else if (family == AF_INET && address.address.ss_family == AF_INET6) {
    const auto& six = reinterpret_cast<const sockaddr_in6&>(address.address);
    if (!IN6_IS_ADDR_V4MAPPED(&six.sin6_addr)) return address;  // the kernel refuses it
    auto& four = reinterpret_cast<sockaddr_in&>(other.address);
    four.sin_port = six.sin6_port;
    std::memcpy(&four.sin_addr, six.sin6_addr.s6_addr + kMappedPrefix.size(), sizeof four.sin_addr);
    other.bytes = sizeof four;
  }
  return other;
}

}  // namespace

Result<UdpSocket> UdpSocket::open(const TcpAddress& address) {
  int error = 0;
  for (const SocketAddress& place : places_of(address)) {
    const sa_family_t family = place.address.ss_family;
    shm::Descriptor socket(::socket(family, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    const auto* raw = reinterpret_cast<const sockaddr*>(&place.address);
    error = socket.valid() && bind(socket.get(), raw, place.bytes) == 0 ? 0 : errno;
    if (error == 0) return UdpSocket(std::move(socket), family);
    if (error != EAFNOSUPPORT && error != EADDRNOTAVAIL) break;
  }
  const Code code = error == EADDRINUSE ? Code::kDuplicate : Code::kNotFound;
  return fail(socket_failure(code, "taking datagrams at " + address.text() + " (UDP)", error));
}

void UdpSocket::send(const SocketAddress& to, std::span<const std::byte> bytes) const {
  const SocketAddress there = in_family(to, family_);
  const auto* raw = reinterpret_cast<const sockaddr*>(&there.address);
  static_cast<void>(
      sendto(socket_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT, raw, there.bytes));
}

// An error other than that none waits belongs to one datagram, so it counts as one.
void UdpSocket::receive(std::size_t most, const Take& take) const {
  std::array<std::byte, kDatagramBytesMax> bytes;
  for (std::size_t i = 0; i < most; ++i) {
    SocketAddress from;
    from.bytes = sizeof from.address;
    const ssize_t n = recvfrom(socket_.get(), bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_TRUNC,
                               reinterpret_cast<sockaddr*>(&from.address), &from.bytes);
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return;
    if (n < 0 || static_cast<std::size_t>(n) > bytes.size()) continue;
    take(from, std::span(bytes).first(static_cast<std::size_t>(n)));
  }
}

}  // namespace muster::control
