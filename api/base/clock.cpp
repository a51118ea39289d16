#include "api/base/clock.hpp"

#include <ctime>

namespace muster {

Instant SteadyClock::now() const noexcept {
  timespec ts;
  clock_gettime(CLOCK_MONOTONIC, &ts);
  return std::chrono::seconds(ts.tv_sec) + std::chrono::nanoseconds(ts.tv_nsec);
}

}  // namespace muster
