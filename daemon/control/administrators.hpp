// Whom to ask where a limit is too low: supervisor and engines say it alike.
#pragma once

#include <cstdint>
#include <string>

#include <fmt/format.h>

namespace muster::control {

// Of a daemon that runs as user `governor`.
inline std::string administrators(std::uint32_t governor) {
  return governor == 0 ? "root" : fmt::format("root or user {}", governor);
}

}  // namespace muster::control
