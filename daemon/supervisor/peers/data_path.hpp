// DataPath: the interface by which this node exchanges the data of its jobs, and the address at which other
// nodes try the path to it. of_peer() gives the same of a peer, as the peer reports it.
#pragma once

#include "api/base/network/interface_choice.hpp"
#include "daemon/control/link/path_echo.hpp"
#include "daemon/control/packet.hpp"

#include <memory>
#include <optional>
#include <string>
#include <utility>

namespace muster::supervisor {

// Owns    the far end of trials, once there is an address.
// Thread  the supervisor's loop.
// Bound   one listener.
// Fails   never: an interface or address that cannot be had is reported as "trouble".
class DataPath {
 public:
  // `network`: of the cluster; empty: none, and the path is that of the daemons.
  DataPath(control::Loop& loop, std::string network) : loop_(loop), network_(std::move(network)) {}

  // For other nodes and command lines: {"uses", "why", "mtu", "address", "port"}, the last two if an address
  // is known, or {"trouble"}. A change goes to the log.
  const control::Json& describe(const InterfaceRule& rule);
  // As it was described last; null before.
  const control::Json& described() const { return described_; }

  // A peer's description of its own path, without fields that cannot be true.
  static control::Json of_peer(const control::Json& said);

 private:
  Status choose(const InterfaceRule& rule);

  control::Loop& loop_;
  const std::string network_;
  std::optional<IpAddress> address_;
  std::unique_ptr<control::PathEcho> echo_;
  control::Json described_;
};

}  // namespace muster::supervisor
