// Turns: members of a job as fibers of one thread, of which one goes on at a time, on a clock that moves only
// when it is told to.
//
// A member gives its turn up where it would wait (sched_yield, futex, poll, nanosleep), and by chance at the
// fault points of api/base/fault_point.hpp. Linked into a program, turns.cpp takes the place of these calls
// and of the steady clock.
#pragma once

#include "tests/support/manual_clock.hpp"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <random>

namespace muster::test {

// One thread of control, with a stack of its own.
//
// Owns    its stack.
// Thread  one: that of its Turns.
// Bound   kStackBytes.
// Fails   never. A fiber that is dropped in the middle is never unwound: what its frames held stays.
class Fiber {
 public:
  static constexpr std::size_t kStackBytes = std::size_t{256} << 10;
  enum class Pause : std::uint8_t { kPoint, kWait, kAsk, kSleep, kOver };  // kAsk: in poll()

  Fiber();
  ~Fiber();
  // Drops what it was doing. The next turn begins `body`.
  void begin(std::function<void()> body);
  // Goes on until it gives its turn up.
  Pause go_on();
  // In a fiber: gives its turn up.
  static void pause(Pause why);
  static bool inside();

 private:
  struct Context;
  static void enter();
  std::unique_ptr<Context> context_;
};

// Owns    the clock, and the dice for turns at fault points.
// Thread  one. There is one at a time.
// Bound   none.
// Fails   never.
class Turns {
 public:
  explicit Turns(std::uint64_t seed);
  ~Turns();
  Turns(const Turns&) = delete;
  Turns& operator=(const Turns&) = delete;

  ManualClock clock;
  Nanos sleep{0};  // for which the member wants to sleep that has given its turn up so

  // The Turns that there is; nullptr: none.
  static Turns* now();
  // Whether a member gives its turn up at a fault point.
  bool by_chance();

 private:
  std::mt19937_64 random_;
  std::uint64_t one_in_;
};

}  // namespace muster::test
