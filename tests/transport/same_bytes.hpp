// Comparisons of memory as a whole. Loops over single bytes, as == on vectors of bytes is, took a third of a
// suite's time under a sanitizer.
#pragma once

#include <cstddef>
#include <cstring>
#include <span>

namespace muster::transport::test {

inline bool same_bytes(std::span<const std::byte> a, std::span<const std::byte> b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size()) == 0);
}
// Whether each byte has that value.
inline bool all_bytes_are(std::byte value, std::span<const std::byte> bytes) {
  return bytes.empty() ||
         (bytes.front() == value && same_bytes(bytes.first(bytes.size() - 1), bytes.subspan(1)));
}

}  // namespace muster::transport::test
