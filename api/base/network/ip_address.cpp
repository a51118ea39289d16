#include "api/base/network/ip_address.hpp"

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <cstring>

#include <arpa/inet.h>
#include <netinet/in.h>

namespace muster {
namespace {

constexpr std::array<std::uint8_t, 12> kMapped{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
constexpr std::size_t kBytesOfFour = 4;

IpAddress of_four(const void* bytes) {
  IpAddress address;
  std::memcpy(address.bytes.data(), bytes, kBytesOfFour);
  return address;
}

IpAddress of_six(const std::uint8_t* bytes) {
  if (std::equal(kMapped.begin(), kMapped.end(), bytes)) return of_four(bytes + kMapped.size());
  IpAddress address;
  address.six = true;
  std::memcpy(address.bytes.data(), bytes, address.bytes.size());
  return address;
}

}  // namespace

std::optional<IpAddress> IpAddress::parse(std::string_view text) {
  const std::string whole(text);
  in_addr four{};
  if (inet_pton(AF_INET, whole.c_str(), &four) == 1) return of_four(&four);
  in6_addr six{};
  if (inet_pton(AF_INET6, whole.c_str(), &six) == 1) return of_six(six.s6_addr);
  return std::nullopt;
}

std::optional<IpAddress> IpAddress::of(const sockaddr& address) {
  if (address.sa_family == AF_INET) return of_four(&reinterpret_cast<const sockaddr_in&>(address).sin_addr);
  if (address.sa_family == AF_INET6)
    return of_six(reinterpret_cast<const sockaddr_in6&>(address).sin6_addr.s6_addr);
  return std::nullopt;
}

std::string IpAddress::text() const {
  std::array<char, INET6_ADDRSTRLEN> text{};
  inet_ntop(six ? AF_INET6 : AF_INET, bytes.data(), text.data(), text.size());
  return text.data();
}

bool IpAddress::loopback() const {
  static const IpAddress kOne = *parse("::1");
  return six ? *this == kOne : bytes[0] == 127;
}

bool IpAddress::link_local() const {
  return six ? bytes[0] == 0xfe && (bytes[1] & 0xc0) == 0x80 : bytes[0] == 169 && bytes[1] == 254;
}

std::optional<Subnet> Subnet::parse(std::string_view text) {
  const std::size_t slash = text.find('/');
  if (slash == std::string_view::npos) return std::nullopt;
  const auto address = IpAddress::parse(text.substr(0, slash));
  const std::string_view digits = text.substr(slash + 1);
  std::uint32_t bits = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), bits);
  const bool number = error == std::errc() && end == digits.data() + digits.size();
  if (!address || !number || bits > (address->six ? 128u : 32u)) return std::nullopt;
  return Subnet{*address, bits};
}

bool Subnet::contains(const IpAddress& other) const {
  if (other.six != address.six) return false;
  const std::size_t whole = bits / 8;
  if (!std::equal(address.bytes.begin(), address.bytes.begin() + whole, other.bytes.begin())) return false;
  const std::uint32_t rest = bits % 8;
  if (rest == 0) return true;
  const auto mask = static_cast<std::uint8_t>(0xff << (8 - rest));
  return (address.bytes[whole] & mask) == (other.bytes[whole] & mask);
}

}  // namespace muster
