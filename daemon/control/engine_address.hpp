// EngineAddress: the address of a job's engine on one node, for the engines on other nodes. Only their
// network understands the bytes; here they are carried, from engines to supervisors, between nodes, and back.
#pragma once

#include "api/base/ids.hpp"
#include "api/base/result.hpp"
#include "daemon/control/job.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace muster::control {

using EngineAddress = std::vector<std::byte>;

constexpr std::size_t kAddressBytesMax = std::size_t{64} << 10;
constexpr std::size_t kAddressesBytesMax = std::size_t{768} << 10;  // of all nodes of a job: one message

// Field `address` of a message; an empty address is left out.
void write_address(std::span<const std::byte> address, Json& message);
Result<EngineAddress> address_in(const Json& message);  // kProtocol

// By which an engine connects with that of another node (Backend::connect).
struct EngineCall {
  NodeIndex node;
  EngineAddress address;
  std::uint32_t generation = 0;
};
// Field `calls` of a message.
void write_calls(std::span<const EngineCall> calls, Json& message);
Result<std::vector<EngineCall>> calls_in(const Json& message, std::size_t nodes);  // kProtocol

// Field `addresses` of a message: one for each node, by NodeIndex. kNoResource: all together are too large.
Status write_addresses(std::span<const EngineAddress> addresses, Json& message);
Result<std::vector<EngineAddress>> addresses_in(const Json& message, std::size_t nodes);  // kProtocol

}  // namespace muster::control
