// What a steady_rank shows of itself while it works, in a file of its own.
#pragma once

#include <atomic>
#include <cstdint>

namespace muster::test {

constexpr const char* kProgressSuffix = ".progress";

// One writer, the rank; starts at zero.
struct Progress {
  std::atomic<std::uint64_t> operations;  // rounds of them that are done, and were right
  std::atomic<std::uint64_t> longest_ns;  // that one of them took
};
static_assert(std::atomic<std::uint64_t>::is_always_lock_free);

}  // namespace muster::test
