// Interrupt: a flag that any thread raises, and how the session's own thread leaves the operation in which it
// waits (decision M15).
#pragma once

#include "api/client/connection.hpp"

#include <muster/muster.h>

#include <atomic>
#include <cstdint>

namespace muster::client {

// Owns    the flag.
// Thread  raise(): any, and a signal handler. All else: the session's, which alone lowers the flag.
// Bound   one flag: several raises before it is lowered count as one.
// Fails   leave(): as Connection::ask.
class Interrupt {
 public:
  // `connection` outlives it.
  explicit Interrupt(Connection& connection) : connection_(connection) {}

  // No allocation, lock or system call, and errno stays. What the caller wrote before is visible to the
  // thread that finds itself interrupted.
  void raise() noexcept { raised_.store(true, std::memory_order_release); }
  bool raised() const { return raised_.load(std::memory_order_relaxed); }
  // A call that may wait ends with `status`. It lowers the flag if the call was interrupted or its group has
  // failed: the first wait of a recovery must not end because of the wait before it.
  Status spend(Status status) {
    const bool ended = status.code() == Code::kWaitInterrupted || is_group_failure(status.code());
    if (ended) raised_.exchange(false, std::memory_order_acquire);
    return status;
  }

  // Asks the engine to end, for all members, what this rank waits for: what has been started on `lane`, or
  // with MUSTER_LANE_COUNT what the group runs directly in that epoch. It may have ended otherwise by
  // now.
  Status leave(muster_group group, std::uint64_t epoch, muster_lane lane);
  // INTERRUPTED instead of ABORTED, if it was this rank that ended the operation.
  Status as_interrupted(const Status& verdict) const;

 private:
  static_assert(std::atomic<bool>::is_always_lock_free, "a signal handler takes no lock");

  Connection& connection_;
  std::atomic<bool> raised_{false};
};

}  // namespace muster::client
