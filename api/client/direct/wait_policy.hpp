// How a caller waits for its peers: it polls, then yields its core between polls, then sleeps on a futex.
//
// Polling is cheap, and sees a peer on another core soonest (a cache line takes 50 ns). Where ranks outnumber
// cores, the peer may need this very core, so the caller yields it almost at once. A meeting then takes a
// context switch, not a time slice. The peer wakes a caller that sleeps (Waiter::publish). The caller also
// wakes by itself every few milliseconds, to check the epoch, the deadline and the interrupt flag.
#pragma once

#include "api/base/clock.hpp"
#include "api/shm/direct.hpp"

#include <chrono>
#include <cstdint>

namespace muster::client {

// How a wait ended.
enum class Waited : std::uint8_t {
  kMet,
  kEnded,  // the epoch has ended, the awaited word will not come, or the caller gives up at its deadline
  kAlone,  // the engine is gone
  kInterrupted,
};

// The wait of a member, as the engine needs it to find the cause of a passed deadline.
struct Wanted {
  std::uint64_t group = 0;  // handle
  std::uint64_t epoch = 0;
  shm::DirectWait kind = shm::DirectWait::kArrivals;
  std::uint32_t peer = 0;      // kMessage, kReceived: index of the other side
  std::uint64_t position = 0;  // of the operation; kMessage, kReceived: of the message
  std::uint64_t phase = 0;     // kPhase
  Nanos deadline{0};           // the one that has passed, in overdue()
};

// WaitHooks: the checks and reports of a waiting caller, beside its reads of its peers' words.
//
// Owns    nothing.
// Thread  the session's.
// Bound   engine_gone: one system call; overdue: one question to the engine.
// Fails   never.
class WaitHooks {
 public:
  virtual ~WaitHooks() = default;
  virtual Instant now() const = 0;
  // The core on which the caller runs: a hint, which may be out of date at once.
  virtual std::uint32_t core() const { return 0; }
  // Whether the engine has closed the session's socket, or has failed to answer a request.
  virtual bool engine_gone() = 0;
  // Reports that the deadline of the wait has passed. The engine finds the members that are missing and ends
  // the epoch, unless none is missing by now.
  virtual void overdue(const Wanted& wanted) = 0;
  // Whether another thread or a signal handler has asked this caller to leave its wait. Makes no system call.
  virtual bool interrupted() const { return false; }
};

// Owns    the bounds of one operation's waits.
// Thread  the session's.
// Bound   the deadline, from the first wait that polling does not end: quick waits read no clock.
// Fails   never.
class WaitPolicy {
 public:
  // At the deadline the caller asks the engine for the cause, or stops waiting.
  enum class AtDeadline : std::uint8_t { kAsk, kGiveUp };

  WaitPolicy(Nanos timeout, bool crowded, AtDeadline at_deadline = AtDeadline::kAsk)
      : timeout_(timeout), crowded_(crowded), at_deadline_(at_deadline) {}
  WaitPolicy giving_up() const {
    WaitPolicy policy(timeout_, crowded_, AtDeadline::kGiveUp);
    policy.interruptible_ = interruptible_;
    return policy;
  }
  // For a wait that is no operation of a group: an interrupt is not meant for it.
  WaitPolicy undisturbed() const {
    WaitPolicy policy = *this;
    policy.interruptible_ = false;
    return policy;
  }

  // The deadline begins again at the next check.
  void renew() { deadline_ = Instant::max(); }

  Nanos timeout() const { return timeout_; }
  bool crowded() const { return crowded_; }
  bool gives_up() const { return at_deadline_ == AtDeadline::kGiveUp; }
  bool interruptible() const { return interruptible_; }
  Instant deadline(const WaitHooks& hooks) {
    if (deadline_ == Instant::max()) begin(hooks.now());
    return deadline_;
  }
  // Reads the clock. If the last reading is more than kHeldUp ago, this process was stopped, perhaps with all
  // others. That time does not count, so no member is blamed for it.
  bool over(const WaitHooks& hooks) {
    const Instant now = hooks.now();
    if (deadline_ == Instant::max()) begin(now);
    if (now - looked_ > kHeldUp) deadline_ = later(deadline_, now - looked_);
    looked_ = now;
    return now >= deadline_;
  }

 private:
  static constexpr Nanos kHeldUp = std::chrono::seconds(1);  // the longest nap is 5 ms

  void begin(Instant now) {
    deadline_ = later(now, timeout_);
    looked_ = now;
  }

  Nanos timeout_;
  Instant deadline_ = Instant::max();
  Instant looked_{0};  // latest reading of the clock since the deadline began
  bool crowded_;
  AtDeadline at_deadline_;
  bool interruptible_ = true;
};

}  // namespace muster::client
