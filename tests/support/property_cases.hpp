// How many random cases a property test tries.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <string>

namespace muster::test {

// MUSTER_PROPERTY_CASES where that is set, else `usual`, of which a sanitizer's slow program tries a fifth.
inline std::uint64_t property_cases(std::uint64_t usual) {
  if (const char* said = std::getenv("MUSTER_PROPERTY_CASES")) return std::stoull(said);
#if defined(MUSTER_SANITIZED)
  return usual / 5;
#else
  return usual;
#endif
}

}  // namespace muster::test
