// The users that can raise a limit, as messages of the supervisor and of engines name them.
#pragma once

#include <cstdint>
#include <string>

#include <fmt/format.h>

namespace muster::control {

// The administrators of a daemon that runs as user `governor`.
inline std::string administrators(std::uint32_t governor) {
  return governor == 0 ? "root" : fmt::format("root or user {}", governor);
}

}  // namespace muster::control
