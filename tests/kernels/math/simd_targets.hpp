// Runs a test body on every SIMD target that this build has and this machine can run.
#pragma once

#include "kernels/math/reduce.hpp"

#include <cstdint>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <hwy/targets.h>

namespace muster::math::test {

// Calls body(name) with dispatch forced to each target in turn; returns the names.
template<class Body>
std::vector<std::string> on_every_target(Body body) {
  std::vector<std::string> names;
  const std::int64_t supported = hwy::SupportedTargets() | HWY_SCALAR | HWY_EMU128;
  for (int bit = 0; bit < 63; ++bit) {
    const std::int64_t target = std::int64_t{1} << bit;
    if ((supported & target) == 0) continue;
    hwy::SetSupportedTargetsForTest(target);
    hwy::GetChosenTarget().Update(target);
    const std::string name = simd_target();
    if (name == hwy::TargetName(target)) {  // else this build has no such target and fell back to another
      SCOPED_TRACE("SIMD target " + name);
      body(name);
      names.push_back(name);
    }
  }
  hwy::SetSupportedTargetsForTest(0);
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
  return names;
}

}  // namespace muster::math::test
