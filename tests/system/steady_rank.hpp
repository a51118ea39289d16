// The progress that a steady_rank shows while it works, in a file of its own.
#pragma once

#include <atomic>
#include <cstdint>

namespace muster::test {

constexpr const char* kProgressSuffix = ".progress";

// The rank is the only writer. It starts at zero.
struct Progress {
  std::atomic<std::uint64_t> operations;  // completed rounds with right results
  std::atomic<std::uint64_t> longest_ns;  // of one round
};
static_assert(std::atomic<std::uint64_t>::is_always_lock_free);

}  // namespace muster::test
