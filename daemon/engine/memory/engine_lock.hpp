// EngineLock: the mutex that guards the engine's state. It also shows which thread holds it, and for which
// work.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>

#include <unistd.h>

namespace muster::engine {

// Owns    the mutex.
// Thread  any; doing() under the lock; sight() without it.
// Bound   a few stores to a line of its own beside the mutex.
// Fails   never.
class EngineLock {
 public:
  void lock() {
    mutex_.lock();
    static thread_local const pid_t self = ::gettid();
    doing_.store("a message", std::memory_order_relaxed);
    thread_.store(self, std::memory_order_relaxed);
    holds_.fetch_add(1, std::memory_order_release);
  }
  void unlock() {
    holds_.fetch_add(1, std::memory_order_release);
    mutex_.unlock();
  }
  // Names the work of the holder, a literal. The watchdog shows it when a turn takes too long.
  void doing(const char* what) { doing_.store(what, std::memory_order_relaxed); }

  struct Sight {
    std::uint64_t holds = 0;  // odd while it is held; another number for each holder
    const char* doing = "";
    pid_t thread = 0;
  };
  Sight sight() const {
    return {holds_.load(std::memory_order_acquire), doing_.load(std::memory_order_relaxed),
            thread_.load(std::memory_order_relaxed)};
  }

 private:
  std::mutex mutex_;
  std::atomic<std::uint64_t> holds_{0};
  std::atomic<const char*> doing_{""};
  std::atomic<pid_t> thread_{0};
};

}  // namespace muster::engine
