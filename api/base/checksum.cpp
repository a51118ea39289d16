#include "api/base/checksum.hpp"

#include <charconv>

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace muster::checkpoint {

Hash128 checksum(std::span<const std::byte> bytes) noexcept {
  const XXH128_hash_t hash = XXH3_128bits(bytes.data(), bytes.size());
  return {hash.low64, hash.high64};
}

std::uint64_t checksum64(std::span<const std::byte> bytes) noexcept {
  return XXH3_64bits(bytes.data(), bytes.size());
}

std::optional<Hash128> hash_of_hex(std::string_view text) noexcept {
  if (text.size() != 32 || text.find_first_not_of("0123456789abcdef") != std::string_view::npos)
    return std::nullopt;
  Hash128 hash;
  std::from_chars(text.data(), text.data() + 16, hash.high, 16);
  std::from_chars(text.data() + 16, text.data() + 32, hash.low, 16);
  return hash;
}

}  // namespace muster::checkpoint
