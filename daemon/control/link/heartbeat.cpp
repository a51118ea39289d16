#include "daemon/control/link/heartbeat.hpp"

#include "daemon/control/link/openssl.hpp"

#include <algorithm>
#include <limits>

#include <openssl/crypto.h>

namespace muster::control {
namespace {

constexpr std::uint32_t kMagic = 0x4d534842;  // "MSHB"
constexpr std::uint32_t kVersion = 1;
constexpr std::size_t kFromAt = 8;
constexpr std::size_t kToAt = 12;
constexpr std::size_t kSequenceAt = 16;
constexpr std::size_t kSilenceAt = 24;
constexpr std::size_t kTagAt = 28;
constexpr std::size_t kTagBytes = 32;
static_assert(kTagAt + kTagBytes == kHeartbeatBytes);
constexpr std::uint32_t kGivenUp = std::numeric_limits<std::uint32_t>::max();

template<class T>
void put(std::span<std::byte> bytes, std::size_t at, T value) {
  for (std::size_t i = 0; i < sizeof value; ++i)
    bytes[at + i] = std::byte(value >> 8 * (sizeof value - 1 - i) & 0xff);
}

template<class T>
T get(std::span<const std::byte> bytes, std::size_t at) {
  T value = 0;
  for (std::size_t i = 0; i < sizeof value; ++i)
    value = static_cast<T>(value << 8 | std::to_integer<T>(bytes[at + i]));
  return value;
}

std::uint32_t silence_as_sent(Nanos silence) {
  if (silence == Nanos::max()) return kGivenUp;
  const auto ms = silence / std::chrono::milliseconds(1);
  return static_cast<std::uint32_t>(std::clamp<std::int64_t>(ms, 0, std::int64_t{kGivenUp} - 1));
}

// The tag of the bytes that stand before it.
Result<std::array<std::byte, kTagBytes>> tag_of(std::span<const std::byte> bytes, const Heartbeat::Key& key) {
  std::array<std::byte, kTagBytes> tag;
  std::size_t length = 0;
  const auto* text = reinterpret_cast<const unsigned char*>(bytes.data());
  if (EVP_Q_mac(nullptr, "HMAC", nullptr, "SHA256", nullptr, key.data(), key.size(), text, kTagAt,
                reinterpret_cast<unsigned char*>(tag.data()), tag.size(), &length) == nullptr ||
      length != tag.size())
    return fail(openssl::failed_to("sealing a heartbeat"));
  return tag;
}

}  // namespace

Result<Heartbeat::Bytes> seal(const Heartbeat& heartbeat, const Heartbeat::Key& key) {
  Heartbeat::Bytes bytes{};
  put(bytes, 0, kMagic);
  put(bytes, 4, kVersion);
  put(bytes, kFromAt, heartbeat.from);
  put(bytes, kToAt, heartbeat.to);
  put(bytes, kSequenceAt, heartbeat.sequence);
  put(bytes, kSilenceAt, silence_as_sent(heartbeat.silence));
  MUSTER_ASSIGN_OR_RETURN(const auto tag, tag_of(bytes, key));
  std::copy(tag.begin(), tag.end(), bytes.begin() + kTagAt);
  return bytes;
}

std::optional<std::uint32_t> sender_of(std::span<const std::byte> datagram) {
  if (datagram.size() != kHeartbeatBytes || get<std::uint32_t>(datagram, 0) != kMagic ||
      get<std::uint32_t>(datagram, 4) != kVersion)
    return std::nullopt;
  return get<std::uint32_t>(datagram, kFromAt);
}

std::optional<Heartbeat> HeartbeatReader::open(std::span<const std::byte> datagram) {
  if (sender_of(datagram) != from_) return std::nullopt;
  const auto tag = tag_of(datagram, key_);
  if (!tag || CRYPTO_memcmp(tag->data(), datagram.data() + kTagAt, tag->size()) != 0) return std::nullopt;
  Heartbeat heartbeat{.from = from_,
                      .to = get<std::uint32_t>(datagram, kToAt),
                      .sequence = get<std::uint64_t>(datagram, kSequenceAt)};
  if (heartbeat.to != to_ || heartbeat.sequence <= last_) return std::nullopt;
  last_ = heartbeat.sequence;
  const auto silence = get<std::uint32_t>(datagram, kSilenceAt);
  heartbeat.silence = silence == kGivenUp ? Nanos::max() : Nanos(std::chrono::milliseconds(silence));
  return heartbeat;
}

}  // namespace muster::control
