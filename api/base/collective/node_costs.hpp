// NodeCosts: what parts of a collective cost on a node. All members of a group choose algorithms by the same
// ones.
#pragma once

#include <cstdint>

namespace muster {

// The defaults are of two cores of a Zen 4 in a virtual machine.
struct NodeCosts {
  static constexpr std::uint32_t kMax = 1'000'000'000;

  std::uint32_t meeting_ns = 130;              // members with a core each have all seen that all have come
  std::uint32_t turn_ns = 1500;                // a rank gives its core to another process
  std::uint32_t cached_bytes_per_us = 80'000;  // read and written together by one core, within its caches
  std::uint32_t memory_bytes_per_us = 20'000;  // and beyond them

  bool operator==(const NodeCosts&) const = default;
  // Each is in 1..kMax.
  bool sound() const {
    const auto good = [](std::uint32_t value) { return value >= 1 && value <= kMax; };
    return good(meeting_ns) && good(turn_ns) && good(cached_bytes_per_us) && good(memory_bytes_per_us);
  }
};

}  // namespace muster
