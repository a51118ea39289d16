// network_devices(): the network devices of this node, as the kernel lists them.
#pragma once

#include "api/base/network/interface_choice.hpp"

#include <string>
#include <vector>

namespace muster {

// Interfaces of TCP with their addresses, then ports of RDMA devices, each kind by number or name.
// `infiniband`: the folder in which the kernel shows RDMA devices; it need not exist. Fails with kInternal if
// the kernel does not list its interfaces.
Result<std::vector<NetworkDevice>> network_devices(const std::string& infiniband = "/sys/class/infiniband");

// The variable by which a network's library itself takes interfaces: "UCX_NET_DEVICES" of "ucx". Empty for an
// unknown network.
std::string interface_variable(const std::string& network);

// The devices of this node through which that network reaches others. The library's own environment variable
// wins: then the library chooses, and `why` says so. Fails as choose_interfaces().
Result<InterfaceChoice> interfaces_of_network(const std::string& name, const InterfaceRule& rule);

}  // namespace muster
