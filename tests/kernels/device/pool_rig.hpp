// Shared parts of the host pool's suites: a pool with its device, and tasks that count, write, or hold a
// worker.
#pragma once

#include "kernels/device/host/device.hpp"
#include "kernels/device/pool.hpp"

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>

namespace muster::device::host::test {

// Workers that sleep at once: every enqueue has to wake one.
inline PoolOptions sleepy(std::uint32_t workers, IdleProgress* progress = nullptr) {
  PoolOptions options;
  options.workers = workers;
  options.spin = Nanos{0};
  options.progress = progress;
  return options;
}

// A progress waits for this bell. It has no timeout, so a lost wake hangs the test instead of slowing it.
class Bell {
 public:
  void wait() {
    std::unique_lock<std::mutex> lock(mutex_);
    rings_.wait(lock, [this] { return rung_; });
    rung_ = false;
  }
  void ring() noexcept {
    const std::lock_guard<std::mutex> lock(mutex_);
    rung_ = true;
    rings_.notify_one();
  }

 private:
  std::mutex mutex_;
  std::condition_variable rings_;
  bool rung_ = false;
};

// A pool, its device, and what a test opens from it.
struct Bench {
  explicit Bench(const PoolOptions& options)
      : pool(Pool::start(options).value()), device(open_device(pool->crew(), 0)) {}
  explicit Bench(std::unique_ptr<Pool> manual)
      : pool(std::move(manual)), device(open_device(pool->crew(), 0)) {}
  std::unique_ptr<Stream> stream(Priority priority = Priority::kNormal) {
    return device->open_stream(priority).value();
  }
  std::unique_ptr<Event> event() { return device->create_event().value(); }
  std::unique_ptr<Pool> pool;
  std::unique_ptr<Device> device;
};

// Writes its letter once per part.
struct Letter {
  std::string* text;
  char letter;
  static void run(const void* self, std::uint32_t) {
    const auto* letter = static_cast<const Letter*>(self);
    letter->text->push_back(letter->letter);
  }
  Task task(std::uint32_t parts = 1) const { return {&run, this, parts}; }
};

// A loop of at most `rounds`. It ends early on a machine so busy that each wake costs a time slice. The
// checks do not depend on the number of rounds.
class Rounds {
 public:
  explicit Rounds(std::uint64_t rounds) : left_(rounds), until_(Clock::now() + std::chrono::seconds(1)) {}
  bool next() {
    if (left_ == 0 || (done_ >= 20 && Clock::now() > until_)) return false;
    --left_;
    ++done_;
    return true;
  }
  std::uint64_t done() const { return done_; }

 private:
  using Clock = std::chrono::steady_clock;
  std::uint64_t left_;
  std::uint64_t done_ = 0;
  Clock::time_point until_;
};

struct Counter {
  mutable std::atomic<std::uint64_t> count{0};
  static void run(const void* self, std::uint32_t) { static_cast<const Counter*>(self)->count.fetch_add(1); }
  Task task(std::uint32_t parts = 1) const { return {&run, this, parts}; }
};

// Blocks its worker until opened.
struct Gate {
  mutable std::atomic<std::uint32_t> inside{0};
  std::atomic<bool> open{false};
  static void run(const void* self, std::uint32_t) {
    const auto* gate = static_cast<const Gate*>(self);
    gate->inside.fetch_add(1);
    while (!gate->open.load()) std::this_thread::yield();
  }
  Task task(std::uint32_t parts = 1) const { return {&run, this, parts}; }
  void await(std::uint32_t parts) const {
    while (inside.load() < parts) std::this_thread::yield();
  }
};

}  // namespace muster::device::host::test
