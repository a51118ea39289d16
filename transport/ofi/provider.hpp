// find_provider(): selects the provider of libfabric that moves a node's messages.
#pragma once

#include "api/base/network/interface_choice.hpp"

#include <memory>

#include <rdma/fabric.h>

namespace muster::transport {

using OwnedInfo = std::unique_ptr<fi_info, decltype(&fi_freeinfo)>;

// The first provider of reliable datagrams that uses an RDMA device of the choice, else that of TCP at its
// address: other nodes can reach it by no other. With no interface in the choice, and where the environment
// names one, libfabric decides. kUnsupported: there is none.
Result<OwnedInfo> find_provider(const InterfaceChoice& choice);

}  // namespace muster::transport
