#include "api/base/network/network_devices.hpp"

#include <algorithm>
#include <bit>
#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string_view>
#include <system_error>

#include <ifaddrs.h>
#include <net/if.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

namespace muster {
namespace {

namespace fs = std::filesystem;

std::uint32_t prefix_of(const IpAddress& mask) {
  std::uint32_t bits = 0;
  for (const std::uint8_t byte : mask.bytes) bits += static_cast<std::uint32_t>(std::popcount(byte));
  return bits;
}

std::uint32_t number_in(const std::string& text) {
  std::uint32_t number = 0;
  std::from_chars(text.data(), text.data() + text.size(), number);
  return number;
}

std::string first_line(const fs::path& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

// Not from /sys, which may be that of another network namespace.
std::uint32_t mtu_of(const std::string& interface) {
  const int socket = ::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  const int either = socket >= 0 ? socket : ::socket(AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (either < 0) return 0;
  ifreq request{};
  interface.copy(request.ifr_name, IFNAMSIZ - 1);
  const bool known = ::ioctl(either, SIOCGIFMTU, &request) == 0;
  ::close(either);
  return known ? static_cast<std::uint32_t>(request.ifr_mtu) : 0;
}

NetworkDevice& entry_of(std::string_view name, unsigned flags, std::vector<NetworkDevice>& devices) {
  for (NetworkDevice& device : devices)
    if (device.name == name) return device;
  NetworkDevice& device = devices.emplace_back();
  device.name = name;
  device.up = (flags & IFF_UP) != 0 && (flags & IFF_RUNNING) != 0;
  device.loopback = (flags & IFF_LOOPBACK) != 0;
  device.mtu = mtu_of(device.name);
  return device;
}

// The interface of a port: `ports/1/gid_attrs/ndevs/0`, or that of a device with one port.
std::string interface_at(const fs::path& device, const fs::path& port) {
  if (std::string name = first_line(port / "gid_attrs" / "ndevs" / "0"); !name.empty()) return name;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(device / "device" / "net", error))
    return entry.path().filename();
  return {};
}

// "4: ACTIVE" is up.
void read_ports(const fs::path& folder, std::vector<NetworkDevice>& devices) {
  std::error_code error;
  for (const auto& port : fs::directory_iterator(folder / "ports", error)) {
    NetworkDevice device;
    device.name = folder.filename();
    device.kind = NetworkDevice::Kind::kRdma;
    device.port = number_in(port.path().filename());
    device.up = first_line(port.path() / "state").ends_with("ACTIVE");
    device.interface = interface_at(folder, port.path());
    devices.push_back(std::move(device));
  }
}

std::vector<NetworkDevice> rdma_devices(const fs::path& infiniband) {
  std::vector<NetworkDevice> devices;
  std::error_code error;
  for (const auto& folder : fs::directory_iterator(infiniband, error)) read_ports(folder.path(), devices);
  std::sort(devices.begin(), devices.end(), [](const NetworkDevice& a, const NetworkDevice& b) {
    return std::pair(std::string_view(a.name), a.port) < std::pair(std::string_view(b.name), b.port);
  });
  return devices;
}

}  // namespace

Result<std::vector<NetworkDevice>> network_devices(const std::string& infiniband) {
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0)
    return fail(Code::kInternal, "the kernel does not list its network interfaces: {}", std::strerror(errno));
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> owned(list, &freeifaddrs);
  std::vector<NetworkDevice> devices;
  for (const ifaddrs* each = list; each != nullptr; each = each->ifa_next) {
    NetworkDevice& device = entry_of(each->ifa_name, each->ifa_flags, devices);
    if (each->ifa_addr == nullptr || each->ifa_netmask == nullptr) continue;
    const auto address = IpAddress::of(*each->ifa_addr);
    const auto mask = IpAddress::of(*each->ifa_netmask);
    if (address && mask) device.addresses.push_back({*address, prefix_of(*mask)});
  }
  for (NetworkDevice& device : rdma_devices(infiniband)) devices.push_back(std::move(device));
  return devices;
}

std::string interface_variable(const std::string& network) {
  return network == "ucx" ? "UCX_NET_DEVICES" : network == "ofi" ? "FI_TCP_IFACE" : "";
}

Result<InterfaceChoice> interfaces_of_network(const std::string& name, const InterfaceRule& rule) {
  const std::string variable = interface_variable(name);
  const char* said = variable.empty() ? nullptr : std::getenv(variable.c_str());
  if (said != nullptr) {
    InterfaceChoice choice;
    choice.why = fmt::format("{}={} of the daemon's environment wins{}", variable, said,
                             rule.patterns.empty() ? "" : " over " + rule.setting);
    return choice;
  }
  MUSTER_ASSIGN_OR_RETURN(const auto devices, network_devices());
  return choose_interfaces(devices, rule);
}

}  // namespace muster
