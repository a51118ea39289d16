// UDP between nodes: small datagrams, which may be lost. The socket never blocks.
#pragma once

#include "api/base/result.hpp"
#include "api/shm/descriptor.hpp"
#include "daemon/control/link/tcp.hpp"

#include <cstddef>
#include <functional>
#include <span>
#include <utility>

namespace muster::control {

// A socket at the address and port at which TcpListener listens.
//
// Owns    the socket. Thread  a value; one at a time. Bound  kDatagramBytesMax; the kernel's buffers.
// Fails   open: kDuplicate (the port is in use), kNotFound (no such address here), kNoResource. Later what
//         cannot be sent or received is lost, as on the way.
class UdpSocket {
 public:
  static constexpr std::size_t kDatagramBytesMax = 512;  // longer ones are dropped
  using Take = std::function<void(const SocketAddress& from, std::span<const std::byte> bytes)>;

  static Result<UdpSocket> open(const TcpAddress& address);
  void send(const SocketAddress& to, std::span<const std::byte> bytes) const;
  // Hands over what has come, `most` datagrams at most.
  void receive(std::size_t most, const Take& take) const;
  const shm::Descriptor& descriptor() const { return socket_; }

 private:
  UdpSocket(shm::Descriptor socket, sa_family_t family) : socket_(std::move(socket)), family_(family) {}
  shm::Descriptor socket_;
  sa_family_t family_;
};

}  // namespace muster::control
