// The checksum of saved bytes: XXH3, 128 bits. It finds damage, not malice.
#pragma once

#include "api/base/hash.hpp"

#include <cstddef>
#include <optional>
#include <cstdint>
#include <span>
#include <string_view>

namespace muster::checkpoint {

// Takes no heap, no lock and no system call: a forked child may call it.
Hash128 checksum(std::span<const std::byte> bytes) noexcept;

// The same for short messages, in 64 bits: XXH3.
std::uint64_t checksum64(std::span<const std::byte> bytes) noexcept;

// The inverse of Hash128::hex(); nothing for other text.
std::optional<Hash128> hash_of_hex(std::string_view text) noexcept;

}  // namespace muster::checkpoint
