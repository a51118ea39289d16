// MemoryWaits: a request waits here if other jobs of the owner hold the memory that it needs. Meanwhile the
// supervisor ends the jobs without a rank.
#pragma once

#include "api/base/clock.hpp"
#include "daemon/control/loop.hpp"

#include <chrono>
#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

namespace muster::engine {

// Owns    the waiting requests, and a timer.
// Thread  the conductor.
// Bound   the callers: one request of each client, and the command that makes the job; each until its time.
// Fails   never.
class MemoryWaits {
 public:
  static constexpr Nanos kTime = std::chrono::seconds(11);  // an engine that is told to end has 10 s
  enum class Try : std::uint8_t { kMayWaitAgain, kLast };
  // Makes the request again. The result of the last try is the answer to the request.
  using Again = std::function<void(Try)>;

  // `ask`: tells the supervisor that a request lacks so many bytes.
  MemoryWaits(control::Loop& loop, const Clock& clock, std::function<void(std::uint64_t bytes)> ask)
      : loop_(loop), clock_(clock), ask_(std::move(ask)) {}
  ~MemoryWaits() { loop_.unwatch(timer_); }
  MemoryWaits(const MemoryWaits&) = delete;
  MemoryWaits& operator=(const MemoryWaits&) = delete;

  // `until`: the time of its last try, whatever the supervisor answers.
  void wait(std::uint64_t bytes, Instant until, Again again);
  // The answers of the supervisor: jobs have ended since; or none can end.
  void on_room();
  void on_no_room();

 private:
  struct Request {
    std::uint64_t bytes = 0;
    Instant until{0};
    Again again;
  };
  void try_all(Try which);
  void watch();

  control::Loop& loop_;
  const Clock& clock_;
  std::function<void(std::uint64_t)> ask_;
  std::vector<Request> requests_;
  bool asked_ = false;
  control::Loop::Watch timer_ = 0;
};

}  // namespace muster::engine
