#include "daemon/control/engine_address.hpp"

#include <cstdint>
#include <utility>

#include <nlohmann/json.hpp>

namespace muster::control {
namespace {

Json binary_of(std::span<const std::byte> bytes) {
  const auto* first = reinterpret_cast<const std::uint8_t*>(bytes.data());
  return Json::binary(std::vector<std::uint8_t>(first, first + bytes.size()));
}

Result<EngineAddress> address_of(const Json& json) {
  if (!json.is_binary()) return fail(Code::kProtocol, "an engine's address must be bytes");
  const auto& bytes = json.get_binary();
  if (bytes.size() > kAddressBytesMax)
    return fail(Code::kProtocol, "an engine's address has {} bytes, and {} are possible", bytes.size(),
                kAddressBytesMax);
  const auto all = std::as_bytes(std::span(bytes.data(), bytes.size()));
  return EngineAddress(all.begin(), all.end());
}

}  // namespace

void write_address(std::span<const std::byte> address, Json& message) {
  if (!address.empty()) message["address"] = binary_of(address);
}

Result<EngineAddress> address_in(const Json& message) {
  const auto field = message.find("address");
  if (field == message.end()) return EngineAddress{};
  return address_of(*field);
}

void write_calls(std::span<const EngineCall> calls, Json& message) {
  Json all = Json::array();
  for (const EngineCall& call : calls)
    all.push_back(
        {{"node", call.node.value}, {"address", binary_of(call.address)}, {"generation", call.generation}});
  message["calls"] = std::move(all);
}

Result<std::vector<EngineCall>> calls_in(const Json& message, std::size_t nodes) {
  const auto field = message.find("calls");
  if (field == message.end() || !field->is_array() || field->size() > nodes)
    return fail(Code::kProtocol, "the nodes to be called must be a list of at most {}", nodes);
  std::vector<EngineCall> calls;
  for (const Json& entry : *field) {
    const auto number = [&](const char* name) {
      const auto found = entry.find(name);
      return found != entry.end() && found->is_number_unsigned() ? found->get<std::uint64_t>() : UINT64_MAX;
    };
    if (!entry.is_object() || number("node") >= nodes || number("generation") > UINT32_MAX)
      return fail(Code::kProtocol, "a node to be called needs its index, below {}, and a generation", nodes);
    MUSTER_ASSIGN_OR_RETURN(EngineAddress address, address_in(entry));
    calls.push_back({NodeIndex(static_cast<std::uint32_t>(number("node"))), std::move(address),
                     static_cast<std::uint32_t>(number("generation"))});
  }
  return calls;
}

Status write_addresses(std::span<const EngineAddress> addresses, Json& message) {
  Json all = Json::array();
  std::size_t bytes = 0;
  for (const EngineAddress& address : addresses) {
    bytes += address.size();
    all.push_back(binary_of(address));
  }
  if (bytes > kAddressesBytesMax)
    return failure(Code::kNoResource,
                   "the addresses of its {} engines have {} bytes together, and {} are possible; use fewer "
                   "nodes or another cluster.network",
                   addresses.size(), bytes, kAddressesBytesMax);
  message["addresses"] = std::move(all);
  return {};
}

Result<std::vector<EngineAddress>> addresses_in(const Json& message, std::size_t nodes) {
  const auto field = message.find("addresses");
  if (field == message.end() || !field->is_array())
    return fail(Code::kProtocol, "the addresses of its engines must be a list");
  if (field->size() != nodes)
    return fail(Code::kProtocol, "there are {} addresses of engines for {} nodes", field->size(), nodes);
  std::vector<EngineAddress> addresses;
  std::size_t bytes = 0;
  for (const Json& entry : *field) {
    MUSTER_ASSIGN_OR_RETURN(EngineAddress address, address_of(entry));
    bytes += address.size();
    addresses.push_back(std::move(address));
  }
  if (bytes > kAddressesBytesMax)
    return fail(Code::kProtocol, "the addresses of its engines have {} bytes together, and {} are possible",
                bytes, kAddressesBytesMax);
  return addresses;
}

}  // namespace muster::control
