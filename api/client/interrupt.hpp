// Interrupt: a flag that any thread raises, and with which the session's own thread leaves the operation in
// which it waits (decision M15).
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

  // No allocation, lock or system call; errno is not changed. The interrupted thread sees all that the caller
  // wrote before.
  void raise() noexcept { raised_.store(true, std::memory_order_release); }
  bool raised() const { return raised_.load(std::memory_order_relaxed); }
  // Call it when a call that may wait ends with `status`. Lowers the flag if the call was interrupted or its
  // group failed: an old interrupt must not end the first wait of the recovery.
  Status spend(Status status) {
    const bool ended = status.code() == Code::kWaitInterrupted || is_group_failure(status.code());
    if (ended) raised_.exchange(false, std::memory_order_acquire);
    return status;
  }

  // Asks the engine to end, for all members, the operation in which this rank waits: the starts on `lane`, or
  // with MUSTER_LANE_NONE the group's direct operations in that epoch. They may have ended by then.
  Status leave(muster_group group, std::uint64_t epoch, muster_lane lane);
  // Turns ABORTED into INTERRUPTED if this rank itself ended the operation.
  Status as_interrupted(const Status& verdict) const;

 private:
  static_assert(std::atomic<bool>::is_always_lock_free, "a signal handler takes no lock");

  Connection& connection_;
  std::atomic<bool> raised_{false};
};

}  // namespace muster::client
