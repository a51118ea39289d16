// IpAddress and Subnet: numbers of IPv4 and IPv6 as people write them.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include <sys/socket.h>

namespace muster {

// A value. An address of version 4 that is mapped into version 6 (::ffff:10.0.0.1) is one of version 4.
struct IpAddress {
  std::array<std::uint8_t, 16> bytes{};  // the first four of version 4; the rest is 0
  bool six = false;

  // "10.0.0.1", "fd00::1"; nothing else.
  static std::optional<IpAddress> parse(std::string_view text);
  // Nothing for another family than those of IP.
  static std::optional<IpAddress> of(const sockaddr& address);
  std::string text() const;
  bool loopback() const;
  // fe80::/10 and 169.254.0.0/16: it means something on its own link alone.
  bool link_local() const;

  bool operator==(const IpAddress&) const = default;
};

struct Subnet {
  IpAddress address;  // any within it
  std::uint32_t bits = 0;

  // "10.0.0.0/8", "fd00::/64".
  static std::optional<Subnet> parse(std::string_view text);
  bool contains(const IpAddress& other) const;

  bool operator==(const Subnet&) const = default;
};

}  // namespace muster
