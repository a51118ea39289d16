// Workers: the workers of a crew, the number that works, and which of those sleep.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

namespace muster::device::host {

// Owns    the workers' bells.
// Thread  under the lock of its Crew; size(), working() and works() any.
// Bound   as many workers as it was made with, of which those with the lowest numbers work.
// Fails   never.
class Workers {
 public:
  // One thread of a crew. The thread that rings its bell sets `awake` first.
  struct Worker {
    explicit Worker(std::uint32_t number) : index(number) {}
    const std::uint32_t index;
    std::condition_variable bell;
    bool awake = true;
  };

  explicit Workers(std::uint32_t workers);
  Workers(const Workers&) = delete;
  Workers& operator=(const Workers&) = delete;

  Worker& of(std::uint32_t index) { return *all_[index]; }
  std::uint32_t size() const noexcept { return static_cast<std::uint32_t>(all_.size()); }

  // At least one works, unless there is none. False: it was the same number before. A worker beyond the
  // number is not rung any more, and leaves when it looks next. A worker that joins may be asleep, and is
  // rung for parts.
  bool set_working(std::uint32_t number);
  std::uint32_t working() const noexcept { return working_.load(std::memory_order_relaxed); }
  bool works(const Worker& worker) const noexcept { return worker.index < working(); }

  // The worker is going to sleep: on its own bell, or as the sentinel.
  void lie_down(Worker& worker);
  void set_sentinel(Worker& worker);
  // Sleeps until another thread has roused this worker, which has lain down.
  static void sleep(Worker& worker, std::unique_lock<std::mutex>& lock);
  // Rouses the working worker that lay down last: its cache is warm. The caller rings it; nullptr: none
  // sleeps on its bell.
  Worker* rouse_sleeper();
  // False: there is no sentinel. Otherwise the caller wakes it.
  bool rouse_sentinel();
  bool any_to_rouse() const { return sentinel_ != nullptr || !asleep_.empty(); }
  // Rouses and rings all that sleep on their bells, also those that do not work. Returns their number.
  std::uint32_t rouse_all();

 private:
  std::vector<std::unique_ptr<Worker>> all_;
  std::vector<Worker*> asleep_;  // those of them that work
  Worker* sentinel_ = nullptr;   // asleep in IdleProgress::wait and not yet roused
  // Every worker reads it between parts, and it hardly ever changes: alone on its lines of the cache.
  alignas(128) std::atomic<std::uint32_t> working_;
};

}  // namespace muster::device::host
