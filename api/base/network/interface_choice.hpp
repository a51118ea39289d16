// choose_interfaces(): selects the network devices of a node through which the engines of its jobs reach
// other nodes. A pure function of the list of devices and of the settings.
#pragma once

#include "api/base/network/ip_address.hpp"
#include "api/base/result.hpp"

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace muster {

struct NetworkDevice {
  enum class Kind : std::uint8_t { kTcp, kRdma };
  std::string name;  // "eth0", "mlx5_0"
  Kind kind = Kind::kTcp;
  std::uint32_t port = 0;         // kRdma
  std::vector<Subnet> addresses;  // kTcp; each with the length of its prefix
  bool up = true;
  bool loopback = false;
  std::uint32_t mtu = 0;  // 0: not known
  std::string interface;  // kRdma: the interface for TCP of the same port; empty: not known

  // "eth0", "mlx5_0:1".
  std::string label() const;
};

// A node's settings for its interfaces.
//
// A pattern is a name ("eth0"), a name and no beginning ("=eth0"), or a subnet ("10.1.0.0/16"). It may also
// be the beginning of names ("eth"), if no device has that very name. With '^' before it, it excludes. A
// pattern with the name of an RDMA device leaves only those RDMA devices that patterns name. One that
// excludes an interface excludes the RDMA device of the same port too.
struct InterfaceRule {
  std::vector<std::string> addresses;  // of this node, as others reach it: numbers, the surest first
  std::vector<std::string> patterns;
  std::string setting = "cluster.interfaces";  // that gave the patterns
};

struct InterfaceChoice {
  std::string interface;             // for TCP; empty: the library chooses
  std::optional<IpAddress> address;  // at which others reach this node; none: the library chooses
  std::vector<IpAddress> addresses;  // all of the interface, that one first
  std::uint32_t mtu = 0;
  std::vector<NetworkDevice> rdma;  // that may be used
  std::string why;                  // for people: "it has the address of this node"

  // "eth0 (10.66.0.1, MTU 1500), mlx5_0:1".
  std::string text() const;
};

// kConfig naming setting and interface: a pattern matches nothing, or what is left cannot be used, or several
// interfaces are left and none has an address of this node.
Result<InterfaceChoice> choose_interfaces(std::span<const NetworkDevice> devices, const InterfaceRule& rule);

// kBadArgument: it is no pattern.
Status check_interface_pattern(std::string_view pattern);

}  // namespace muster
