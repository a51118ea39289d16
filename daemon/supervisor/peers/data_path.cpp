#include "daemon/supervisor/peers/data_path.hpp"

#include "api/base/log.hpp"
#include "api/base/network/network_devices.hpp"
#include "daemon/supervisor/base/said.hpp"

#include <cstdint>
#include <limits>
#include <utility>

namespace muster::supervisor {
namespace {

using control::Json;

}  // namespace

const Json& DataPath::describe(const InterfaceRule& rule) {
  Json before = std::exchange(described_, Json::object());
  if (const Status status = choose(rule); !status.ok()) {
    described_ = {{"trouble", cut(status).message()}};
    if (described_ != before) MUSTER_LOG(kWarning, "peers", "{}", status.message());
  } else if (described_ != before) {
    MUSTER_LOG(kInfo, "peers", "this node exchanges data by {}: {}", said_text(described_, "uses"),
               said_text(described_, "why"));
  }
  return described_;
}

// Where the library chooses, the daemons' own path is the best guess.
Status DataPath::choose(const InterfaceRule& rule) {
  MUSTER_ASSIGN_OR_RETURN(const auto choice, interfaces_of_network(network_, rule));
  described_ = {{"uses", choice.text()}, {"why", choice.why}, {"mtu", choice.mtu}};
  auto address = choice.address;
  if (!address && !rule.addresses.empty()) address = IpAddress::parse(rule.addresses.front());
  if (!address) return {};
  if (echo_ == nullptr || address_ != address) {
    MUSTER_ASSIGN_OR_RETURN(echo_, control::PathEcho::open(loop_, *address));
    address_ = address;
  }
  described_.update({{"address", address->text()}, {"port", echo_->port()}});
  return {};
}

Json DataPath::of_peer(const Json& said) {
  Json path = Json::object();
  for (const char* field : {"uses", "why", "trouble"})
    if (std::string text = said_text(said, field); !text.empty()) path[field] = std::move(text);
  const std::uint64_t port = said_number(said, "port");
  const auto address = IpAddress::parse(said_text(said, "address"));
  if (!address || port == 0 || port > std::numeric_limits<std::uint16_t>::max()) return path;
  path.update({{"address", address->text()}, {"port", port}});
  return path;
}

}  // namespace muster::supervisor
