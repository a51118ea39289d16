// The SIGSEGV handler of check mode: it explains the fault of an access to a session's memory.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace muster::client {

// The addresses of one buffer, and why its pages must not be touched.
struct WatchedRange {
  std::uintptr_t begin = 0, end = 0;  // with the guards around it; multiples of a page
  std::uintptr_t data = 0;
  std::uint64_t bytes = 0;
  std::string name;                                         // "rank 1: buffer 0x10001 of 4000 bytes"
  std::vector<std::shared_ptr<const std::string>> reasons;  // by page from `begin` on; null: a guard
};

// Holds the watched ranges still: for each change, and in the handler. The holder must not touch a session's
// memory.
//
// Owns    the one lock of the process.
// Thread  any.
// Bound   waits for others as long as they change a range.
// Fails   never.
class FaultLock {
 public:
  FaultLock() noexcept;
  ~FaultLock();
  FaultLock(const FaultLock&) = delete;
  FaultLock& operator=(const FaultLock&) = delete;
};

// The range must stay where it is until unwatch(). The first range installs the handler, which stays; it
// passes foreign faults on to the handler before it. Both take the lock.
void watch(WatchedRange& range);
void unwatch(WatchedRange& range) noexcept;

}  // namespace muster::client
