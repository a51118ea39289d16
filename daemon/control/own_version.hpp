// The version of the programs of this build, as people and `--json` read it.
#pragma once

#include <muster/muster.h>

#include <string>

#include <fmt/format.h>

namespace muster::control {

inline std::string own_version() {
  return fmt::format("{}.{}.{}", MUSTER_VERSION_MAJOR, MUSTER_VERSION_MINOR, MUSTER_VERSION_PATCH);
}

}  // namespace muster::control
