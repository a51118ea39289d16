// Times that users are promised. A usual run prints them, since a machine that builds something meanwhile has
// its own; MUSTER_CONTRACT=1 holds the run to them.
#pragma once

#include <cstdlib>
#include <string_view>

#include <gtest/gtest.h>

namespace muster::test {

inline bool holds_to_contract() {
  const char* said = std::getenv("MUSTER_CONTRACT");
  return said != nullptr && std::string_view(said) == "1";
}

// `measured` is at most `promised`, where that is asked for. `what` names both and their unit.
inline void expect_promised(double measured, double promised, const char* what) {
  if (!holds_to_contract()) return;
  EXPECT_LE(measured, promised) << what;
}

}  // namespace muster::test
