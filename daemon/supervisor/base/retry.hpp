// When what has failed is tried again.
#pragma once

#include "api/base/clock.hpp"

#include <algorithm>
#include <cstdint>

namespace muster::supervisor {

// The wait after `failures` failures before this one: `first`, each time twice as long, at most `last`.
inline Nanos doubled_wait(Nanos first, std::uint32_t failures, Nanos last) {
  constexpr std::uint32_t kDoublingsMax = 16;
  return std::min<Nanos>(first * (1 << std::min(failures, kDoublingsMax)), last);
}

}  // namespace muster::supervisor
