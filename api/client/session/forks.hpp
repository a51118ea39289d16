// How often this process was forked. A session sees by one load that it is used in a child of its process.
#pragma once

#include "api/base/status.hpp"

#include <atomic>
#include <cstdint>

namespace muster::client {

// Begins to count, once per process. Errors: NO_RESOURCE.
Status count_forks();

// Forks between the first count_forks() and this process; a child has one more than its parent.
inline std::atomic<std::uint32_t> forks_counted{0};
inline std::uint32_t forks() noexcept {
  return forks_counted.load(std::memory_order_relaxed);
}

}  // namespace muster::client
