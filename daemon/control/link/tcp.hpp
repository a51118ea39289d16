// TCP between nodes. Sockets never block: a dial resolves a name, connects and reports through the loop.
#pragma once

#include "api/base/result.hpp"
#include "api/shm/descriptor.hpp"
#include "daemon/control/loop.hpp"

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace muster::control {

// The kernel ends a connection if bytes stay undelivered for so long (TCP_USER_TIMEOUT). It must not
// probe silent connections (SO_KEEPALIVE): within this time it would send one or two probes. One lost probe
// would then end a connection between nodes that live. Heartbeats tell whether nodes live.
constexpr Nanos kUndeliveredMax = std::chrono::seconds(2);

struct TcpAddress {
  std::string host;  // a name or a number
  std::uint16_t port = 0;

  std::string text() const;  // "node01:7733", "[fd00::1]:7733"
};

// The address, if the host is a number.
std::optional<SocketAddress> numeric(const TcpAddress& address);
// Where a socket for that address is bound, to be tried in turn: at a number, or for a name at all addresses
// of this machine, of version 6 for both, or of 4 where it has no 6.
std::vector<SocketAddress> places_of(const TcpAddress& address);
// kNoResource if this process or system is short of something, else that code; with the system's reason.
Status socket_failure(Code otherwise, const std::string& what, int error);

// Accepts connections at the address, if it is a number, else at all addresses of this machine: a name such
// as "node01" may mean a loopback address on its own machine.
//
// Owns    the socket. Thread  a value; one at a time. Bound  the kernel's accept queue.
// Fails   open: kDuplicate (the port is in use), kNotFound (no such address here), kNoResource.
class TcpListener {
 public:
  struct PendingClient {
    shm::Descriptor socket;
    std::string from;  // "10.0.0.2:40112"
  };
  // Port 0: any that is free.
  static Result<TcpListener> open(const TcpAddress& address);
  // kPending if none waits; kNoResource if this process or system is out of descriptors.
  Result<PendingClient> accept() const;
  const shm::Descriptor& descriptor() const { return socket_; }
  std::uint16_t port() const;

 private:
  explicit TcpListener(shm::Descriptor socket) : socket_(std::move(socket)) {}
  shm::Descriptor socket_;
};

// One attempt to reach an address.
//
// Owns    its socket and timer. To destroy it gives the attempt up.
// Thread  the loop's.
// Bound   the time limit; each address that the name has is tried in turn.
// Fails   reports kNotFound (no such name), kDaemonLost (nobody answers, with the reason), kNoResource.
class TcpDial {
 public:
  using Reached = std::function<void(Result<shm::Descriptor>)>;
  // `reached` is called once, from the loop; it may destroy this dial.
  TcpDial(Loop& loop, TcpAddress address, Nanos time, Reached reached);
  ~TcpDial();
  TcpDial(const TcpDial&) = delete;
  TcpDial& operator=(const TcpDial&) = delete;

 private:
  void next();
  void on_connected();
  void finish(Result<shm::Descriptor> result);

  Loop& loop_;
  const TcpAddress address_;
  Reached reached_;
  std::vector<SocketAddress> left_;  // to be tried, the first last
  Status why_;                       // of the last address that failed
  shm::Descriptor socket_;
  Loop::Watch timer_ = 0;
  Loop::Watch watch_ = 0;
  Loop::Watch lookup_ = 0;
};

}  // namespace muster::control
