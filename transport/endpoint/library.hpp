// open_network(): a Network of a library that is loaded when a job needs it. Programs that need none do not
// wait for it. A machine may lack it, and the error says so.
#pragma once

#include "api/base/network/interface_choice.hpp"
#include "transport/endpoint/endpoint.hpp"

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace muster::transport {

// The names of all possible libraries, the preferred one first.
std::vector<std::string> network_names();

// Loads NAME.so from `folder`, a module of this build, and opens a network of it; `here`: this node's index,
// below 65536. kNotFound: no such module. kUnsupported: the module, or a library that it needs, cannot be
// loaded or finds no link on this machine. kVersion: it belongs to another build. A loaded module stays
// loaded.
//
// The network uses the devices that `choice` names, and all if it names no interface. An environment that
// names some (interface_variable in api/base/network/network_devices.hpp) wins.
Result<std::unique_ptr<Network>> open_network(const std::string& folder, const std::string& name,
                                              NodeIndex here, const InterfaceChoice& choice = {});

// The table that a module exports as "muster_network_module".
struct NetworkModule {
  static constexpr std::uint64_t kVersion = 3;  // of Network and all that it names
  std::uint64_t version = kVersion;
  Status (*open)(NodeIndex here, const InterfaceChoice& choice, std::unique_ptr<Network>* network) = nullptr;
};

}  // namespace muster::transport
