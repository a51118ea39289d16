// Hash128: 128 bits by which two sides see that they mean the same.
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
