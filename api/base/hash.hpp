// Hash128: a 128-bit hash that two sides compare.
#pragma once

#include <cstdint>
#include <string>

namespace muster {

struct Hash128 {
  std::uint64_t low = 0;
  std::uint64_t high = 0;
  friend bool operator==(const Hash128&, const Hash128&) = default;
  Hash128& operator+=(const Hash128& other) noexcept;  // modulo 2^128
  Hash128& operator-=(const Hash128& other) noexcept;
  bool zero() const noexcept { return low == 0 && high == 0; }
  std::string hex() const;  // 32 digits, the highest first
};

}  // namespace muster
