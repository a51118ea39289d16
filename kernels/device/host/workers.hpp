// Workers: the workers of a crew: how many of them work, and which of those sleep.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

namespace muster::device::host {

// One thread of a crew. Whoever rings it sets `awake` first.
struct Worker {
  explicit Worker(std::uint32_t number) : index(number) {}
  const std::uint32_t index;
  std::condition_variable bell;
  bool awake = true;
};

// Owns    the workers' bells.
// Thread  under the lock of its Crew; size(), working() and works() any.
// Bound   as many workers as it was made with, of which those with the lowest numbers work.
// Fails   never.
class Workers {
 public:
  explicit Workers(std::uint32_t workers);
  Workers(const Workers&) = delete;
  Workers& operator=(const Workers&) = delete;

  Worker& of(std::uint32_t index) { return *all_[index]; }
  std::uint32_t size() const noexcept { return static_cast<std::uint32_t>(all_.size()); }

  // At least one works, unless there is none. False: it was the same number before. Whoever does not work any
  // more is not rung, and leaves when it looks next. Whoever works anew may be asleep, and is rung for parts.
  bool set_working(std::uint32_t number);
  std::uint32_t working() const noexcept { return working_.load(std::memory_order_relaxed); }
  bool works(const Worker& worker) const noexcept { return worker.index < working(); }

  // The worker is going to sleep: on its own bell, or as the sentinel.
  void lie_down(Worker& worker);
  void set_sentinel(Worker& worker);
  // Until somebody has roused the worker that has lain down.
  static void sleep(Worker& worker, std::unique_lock<std::mutex>& lock);
  // Of those that work. The last to lie down is the first to be roused: its cache is warm. The caller rings
  // it; nullptr: none sleeps on its bell.
  Worker* rouse_sleeper();
  // False: there is no sentinel. Else the caller wakes it.
  bool rouse_sentinel();
  bool any_to_rouse() const { return sentinel_ != nullptr || !asleep_.empty(); }
  // Rouses all that sleep on their bells, also those that do not work, and rings them. Returns how many.
  std::uint32_t rouse_all();

 private:
  std::vector<std::unique_ptr<Worker>> all_;
  std::vector<Worker*> asleep_;  // those of them that work
  Worker* sentinel_ = nullptr;   // asleep in IdleProgress::wait and not yet roused
  // Read by every worker between parts, and hardly ever written: alone on its lines of the cache.
  alignas(128) std::atomic<std::uint32_t> working_;
};

}  // namespace muster::device::host
