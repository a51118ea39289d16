// UntakenReports: what one side of the transport, the network's thread or the engine, leaves for the other.
#pragma once

#include <atomic>
#include <mutex>
#include <utility>
#include <vector>

namespace muster::transport::span {

// Owns    what has not been taken yet, in order.
// Thread  any.
// Bound   none: each side takes all in each turn.
// Fails   never.
template<class Report>
class UntakenReports {
 public:
  void add(Report report) {
    const std::lock_guard lock(mutex_);
    reports_.push_back(std::move(report));
    any_.store(true, std::memory_order_release);
  }
  bool empty() const { return !any_.load(std::memory_order_acquire); }
  // Takes no lock if there are none.
  std::vector<Report> take() {
    if (empty()) return {};
    const std::lock_guard lock(mutex_);
    any_.store(false, std::memory_order_relaxed);
    return std::exchange(reports_, {});
  }

 private:
  std::mutex mutex_;
  std::vector<Report> reports_;
  std::atomic<bool> any_{false};
};

}  // namespace muster::transport::span
