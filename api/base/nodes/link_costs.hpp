// LinkCosts: what a message between nodes costs. All nodes of a job choose algorithms by the same ones.
#pragma once

#include <cstdint>

namespace muster {

// The default trip and rate are those of a virtual link between network namespaces.
struct LinkCosts {
  static constexpr std::uint32_t kMax = 1'000'000'000;

  std::uint32_t trip_ns = 20'000;      // until the first byte of a message is there
  std::uint32_t message_ns = 2'000;    // a node's own work for each message
  std::uint32_t bytes_per_us = 3'000;  // that a node sends, or receives

  bool operator==(const LinkCosts&) const = default;
};

}  // namespace muster
