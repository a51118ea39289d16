#include "api/base/network/interface_choice.hpp"

#include <algorithm>
#include <cstddef>

namespace muster {
namespace {

using Devices = std::span<const NetworkDevice>;
using Kind = NetworkDevice::Kind;

constexpr std::size_t kNamesShown = 12;
constexpr std::size_t kAddressesShown = 3;  // of each

// A pattern without its '^'.
struct Matcher {
  std::string text;  // as written
  std::string_view name;
  std::optional<Subnet> subnet;
  bool excludes = false;
  bool whole = false;  // the name is no beginning

  bool matches(const NetworkDevice& device) const {
    if (subnet) {
      const auto within = [this](const Subnet& own) { return subnet->contains(own.address); };
      return std::any_of(device.addresses.begin(), device.addresses.end(), within);
    }
    return whole ? device.name == name || device.label() == name : device.name.starts_with(name);
  }
};

std::optional<Subnet> subnet_of(std::string_view text) {
  if (const auto address = IpAddress::parse(text)) return Subnet{*address, address->six ? 128u : 32u};
  return Subnet::parse(text);
}

// A name that a device has is that device, and not the beginning of others: mlx5_1 is not mlx5_10.
Matcher matcher_of(const std::string& pattern, Devices devices) {
  Matcher matcher;
  matcher.text = pattern;
  matcher.name = pattern;
  matcher.excludes = matcher.name.starts_with('^');
  if (matcher.excludes) matcher.name.remove_prefix(1);
  matcher.subnet = subnet_of(matcher.name);
  matcher.whole = matcher.name.starts_with('=');
  if (matcher.whole) matcher.name.remove_prefix(1);
  for (const NetworkDevice& device : devices)
    if (device.name == matcher.name || device.label() == matcher.name) matcher.whole = true;
  return matcher;
}

// Addresses by which another node can reach an interface.
std::vector<IpAddress> reachable(const NetworkDevice& device) {
  std::vector<IpAddress> all;
  for (const Subnet& own : device.addresses)
    if (!own.address.link_local()) all.push_back(own.address);
  return all;
}

// All of 127.0.0.0/8 leads to the loopback interface, which shows only its first address.
bool carries(const NetworkDevice& device, const IpAddress& address) {
  if (device.loopback && address.loopback()) return true;
  const auto same = [&address](const Subnet& own) { return own.address == address; };
  return std::any_of(device.addresses.begin(), device.addresses.end(), same);
}

std::string with_addresses(const NetworkDevice& device) {
  std::string text;
  const std::vector<IpAddress> addresses = reachable(device);
  for (std::size_t i = 0; i < std::min(addresses.size(), kAddressesShown); ++i)
    text += (i == 0 ? "" : ", ") + addresses[i].text();
  if (addresses.size() > kAddressesShown) text += " and more";
  return fmt::format("{} ({}{})", device.label(), device.up ? "" : "down, ",
                     text.empty() ? "no address" : text);
}

std::string names_of(std::span<const NetworkDevice* const> devices) {
  std::string text;
  for (std::size_t i = 0; i < std::min(devices.size(), kNamesShown); ++i) {
    const NetworkDevice& device = *devices[i];
    text += text.empty() ? "" : ", ";
    text += device.kind == Kind::kTcp ? with_addresses(device) : device.label();
  }
  return devices.size() > kNamesShown ? text + " and more" : text;
}

// Chooses for one node.
//
// Owns    its reading of the patterns. Thread  one. Bound  the devices and patterns.
// Fails   as choose_interfaces().
class Chooser {
 public:
  Chooser(Devices devices, const InterfaceRule& rule) : devices_(devices), rule_(rule) {
    for (const std::string& pattern : rule.patterns) matchers_.push_back(matcher_of(pattern, devices));
    for (const std::string& text : rule.addresses)
      if (const auto address = IpAddress::parse(text)) own_.push_back(*address);
  }

  Result<InterfaceChoice> choose() {
    MUSTER_RETURN_IF_ERROR(check_matches());
    MUSTER_RETURN_IF_ERROR(choose_interface());
    for (const NetworkDevice& device : devices_)
      if (device.kind == Kind::kRdma && device.up && allowed(device)) choice_.rdma.push_back(device);
    return std::move(choice_);
  }

 private:
  bool includes(Kind kind) const {
    return std::any_of(devices_.begin(), devices_.end(),
                       [&](const NetworkDevice& device) { return device.kind == kind && included(device); });
  }
  bool included(const NetworkDevice& device) const {
    return std::any_of(matchers_.begin(), matchers_.end(), [&device](const Matcher& matcher) {
      return !matcher.excludes && matcher.matches(device);
    });
  }
  // A subnet means the addresses in it, and not the others of the same interface.
  bool meant(const NetworkDevice& device, const IpAddress& address) const {
    return !includes(Kind::kTcp) ||
           std::any_of(matchers_.begin(), matchers_.end(), [&](const Matcher& matcher) {
             return !matcher.excludes && matcher.matches(device) &&
                    (!matcher.subnet || matcher.subnet->contains(address));
           });
  }
  bool excluded(const NetworkDevice& device) const {
    const NetworkDevice* twin = interface_of(device);
    return std::any_of(matchers_.begin(), matchers_.end(), [&](const Matcher& matcher) {
      return matcher.excludes && (matcher.matches(device) || (twin != nullptr && matcher.matches(*twin)));
    });
  }
  bool allowed(const NetworkDevice& device) const {
    return !excluded(device) && (!includes(device.kind) || included(device));
  }
  const NetworkDevice* interface_of(const NetworkDevice& device) const {
    if (device.interface.empty()) return nullptr;
    const auto it = std::find_if(devices_.begin(), devices_.end(), [&device](const NetworkDevice& other) {
      return other.kind == Kind::kTcp && other.name == device.interface;
    });
    return it == devices_.end() ? nullptr : &*it;
  }

  template<class Wanted>
  std::vector<const NetworkDevice*> all(Wanted wanted) const {
    std::vector<const NetworkDevice*> found;
    for (const NetworkDevice& device : devices_)
      if (wanted(device)) found.push_back(&device);
    return found;
  }

  // One file serves nodes whose interfaces have other names: there another pattern has to match.
  Status check_matches() const {
    if (includes(Kind::kTcp)) return {};
    for (const Matcher& matcher : matchers_) {
      const auto matched = [&matcher](const NetworkDevice& device) { return matcher.matches(device); };
      if (matcher.excludes || std::any_of(devices_.begin(), devices_.end(), matched)) continue;
      return failure(Code::kConfig, "{}: '{}' matches no network device; there are {}", rule_.setting,
                     matcher.text, names_of(all([](const NetworkDevice&) { return true; })));
    }
    return {};
  }

  Status choose_interface() {
    const auto possible = all([this](const NetworkDevice& device) {
      return device.kind == Kind::kTcp && device.up && allowed(device) && !reachable(device).empty();
    });
    for (const IpAddress& own : own_)
      for (const NetworkDevice* device : possible)
        if (carries(*device, own) && device->loopback == own.loopback() && meant(*device, own))
          return take(*device, own, "it has the address of this node");
    if (includes(Kind::kTcp)) return take_included(possible);
    if (!rule_.patterns.empty()) return take_left(possible);
    return take_any(possible);
  }

  // Where routes lead to a node, its address may be one of the loopback interface, and any may carry it.
  Status take_any(std::span<const NetworkDevice* const> possible) {
    choice_.why = own_.empty() ? "no address of this node is known"
                               : fmt::format("no interface has the address {} of this node", own_[0].text());
    for (const IpAddress& own : own_)
      for (const NetworkDevice* device : possible)
        if (carries(*device, own)) {
          choice_.address = own;
          choice_.why = fmt::format("{} has the address of this node", device->name);
        }
    return {};
  }

  // In the order of the patterns.
  Status take_included(std::span<const NetworkDevice* const> possible) {
    for (const Matcher& matcher : matchers_)
      for (const NetworkDevice* device : possible) {
        if (matcher.excludes || !matcher.matches(*device)) continue;
        return take(*device, address_of(*device, matcher),
                    fmt::format("'{}' of {} names it", matcher.text, rule_.setting));
      }
    const auto named =
        all([this](const NetworkDevice& device) { return device.kind == Kind::kTcp && included(device); });
    return failure(Code::kConfig,
                   "{}: {} cannot be used; name an interface that is up and has an address, and "
                   "do not exclude it",
                   rule_.setting, names_of(named));
  }

  // Takes the only interface that '^' has left.
  Status take_left(std::span<const NetworkDevice* const> possible) {
    std::vector<const NetworkDevice*> left;
    for (const NetworkDevice* device : possible)
      if (!device->loopback) left.push_back(device);
    if (left.size() == 1)
      return take(*left[0], address_of(*left[0], {}), fmt::format("{} leaves no other", rule_.setting));
    const std::string address =
        own_.empty() ? "no address of this node is known"
                     : fmt::format("the address {} of this node is on none of them", own_[0].text());
    if (left.empty())
      return failure(Code::kConfig, "{}: no interface is left; there are {}", rule_.setting,
                     names_of(all([](const NetworkDevice& device) { return device.kind == Kind::kTcp; })));
    return failure(Code::kConfig, "{}: {} are left, and {}; name one", rule_.setting, names_of(left),
                   address);
  }

  // In the subnet of the pattern, or of the version of this node's address, or the first.
  IpAddress address_of(const NetworkDevice& device, const Matcher& matcher) const {
    const std::vector<IpAddress> addresses = reachable(device);
    for (const IpAddress& address : addresses)
      if (matcher.subnet && matcher.subnet->contains(address)) return address;
    for (const IpAddress& address : addresses)
      if (!own_.empty() && own_[0].six == address.six) return address;
    return addresses.front();
  }

  Status take(const NetworkDevice& device, const IpAddress& address, std::string why) {
    choice_.interface = device.name;
    choice_.address = address;
    choice_.addresses = {address};
    for (const IpAddress& other : reachable(device))
      if (!(other == address)) choice_.addresses.push_back(other);
    choice_.mtu = device.mtu;
    choice_.why = std::move(why);
    return {};
  }

  const Devices devices_;
  const InterfaceRule& rule_;
  std::vector<Matcher> matchers_;
  std::vector<IpAddress> own_;
  InterfaceChoice choice_;
};

}  // namespace

std::string NetworkDevice::label() const {
  return kind == Kind::kRdma ? fmt::format("{}:{}", name, port) : name;
}

std::string InterfaceChoice::text() const {
  std::string text = interface.empty() ? "what the library chooses" : interface;
  if (address) text += fmt::format(" ({}{})", address->text(), mtu == 0 ? "" : fmt::format(", MTU {}", mtu));
  for (const NetworkDevice& device : rdma) text += ", " + device.label();
  return text;
}

Result<InterfaceChoice> choose_interfaces(std::span<const NetworkDevice> devices, const InterfaceRule& rule) {
  return Chooser(devices, rule).choose();
}

Status check_interface_pattern(std::string_view pattern) {
  constexpr const char* kGood =
      "write a name (eth0), the beginning of names (eth), or a subnet (10.1.0.0/16)";
  std::string_view name = pattern;
  if (name.starts_with('^')) name.remove_prefix(1);
  if (name.find(',') != std::string_view::npos)
    return failure(Code::kBadArgument, "'{}' has a comma; write a list, each with its own '^'", pattern);
  if (subnet_of(name)) return {};
  if (name.find('/') != std::string_view::npos)
    return failure(Code::kBadArgument, "'{}' is no subnet; {}", pattern, kGood);
  if (name.starts_with('=')) name.remove_prefix(1);
  const auto odd = [](char c) { return static_cast<unsigned char>(c) <= ' ' || c == '^' || c == '='; };
  if (name.empty() || std::any_of(name.begin(), name.end(), odd))
    return failure(Code::kBadArgument, "'{}' names no interface; {}", pattern, kGood);
  return {};
}

}  // namespace muster
