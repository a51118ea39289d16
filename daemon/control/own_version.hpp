// The version of this program, as people and `--json` read it: one text for all that say it.
#pragma once

#include <muster/muster.h>

#include <string>

#include <fmt/format.h>

namespace muster::control {

inline std::string own_version() {
  return fmt::format("{}.{}.{}", MUSTER_VERSION_MAJOR, MUSTER_VERSION_MINOR, MUSTER_VERSION_PATCH);
}

}  // namespace muster::control
