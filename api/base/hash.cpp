#include "api/base/hash.hpp"

#include <fmt/format.h>

namespace muster {

Hash128& Hash128::operator+=(const Hash128& other) noexcept {
  const bool carry = __builtin_add_overflow(low, other.low, &low);
  high += other.high + (carry ? 1 : 0);
  return *this;
}

Hash128& Hash128::operator-=(const Hash128& other) noexcept {
  const bool borrow = __builtin_sub_overflow(low, other.low, &low);
  high -= other.high + (borrow ? 1 : 0);
  return *this;
}

std::string Hash128::hex() const {
  return fmt::format("{:016x}{:016x}", high, low);
}

}  // namespace muster
