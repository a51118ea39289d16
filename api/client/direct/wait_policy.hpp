// How a caller waits for its peers: first it looks, then it gives its core away between looks, then it
// sleeps.
//
// A look costs nothing and finds a peer that is about to come on another core (a cache line takes 50 ns).
// Where ranks outnumber cores the peer may need this very core, so the caller yields it at once: a meeting is
// then a context switch, not a time slice. A sleeper is woken by the peer it sleeps for (Waiter::publish). It
// also wakes by itself every few milliseconds, to look at the epoch, the deadline and the interrupt flag.
#pragma once

#include "api/base/clock.hpp"
#include "api/shm/direct.hpp"

#include <cstdint>

namespace muster::client {

// How a wait ended.
enum class Waited : std::uint8_t {
  kMet,
  kEnded,  // the epoch has ended, or what is waited for will not come
  kAlone,  // the engine is gone
  kInterrupted,
};

// What a member waits for, for who asks why it takes so long.
struct Wanted {
  std::uint64_t group = 0;  // handle
  std::uint64_t epoch = 0;
  shm::DirectWait kind = shm::DirectWait::kArrivals;
  std::uint32_t peer = 0;      // kMessage, kReceived: index of the other side
  std::uint64_t position = 0;  // of the operation; kMessage, kReceived: of the message
  std::uint64_t phase = 0;     // kPhase
};

// What a waiting caller looks at besides its peers.
//
// Owns    nothing.
// Thread  the session's.
// Bound   engine_gone: one system call; overdue: one question to the engine.
// Fails   never.
class WaitHooks {
 public:
  virtual ~WaitHooks() = default;
  virtual Instant now() const = 0;
  // On which core the caller runs: a hint, which may be out of date at once.
  virtual std::uint32_t core() const { return 0; }
  // The engine's end of the session's socket is closed.
  virtual bool engine_gone() = 0;
  // The deadline of what is waited for has passed: the engine finds out who is missing and ends the epoch,
  // unless all have come by now.
  virtual void overdue(const Wanted& wanted) = 0;
  // Somebody wants the caller out of its wait. A look; raised from another thread or a signal handler.
  virtual bool interrupted() const { return false; }
};

// What happens at the deadline: the engine is asked who is to blame, or the caller goes on without.
enum class AtDeadline : std::uint8_t { kAsk, kGiveUp };

// Owns    the bounds of one operation's waits.
// Thread  the session's.
// Bound   the deadline, from the first wait that is not met at once: a quick operation reads no clock.
// Fails   never.
class WaitPolicy {
 public:
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

  // The deadline has been dealt with: begin it again.
  void renew() { deadline_ = Instant::max(); }

  bool crowded() const { return crowded_; }
  bool gives_up() const { return at_deadline_ == AtDeadline::kGiveUp; }
  bool interruptible() const { return interruptible_; }
  Instant deadline(const WaitHooks& hooks) {
    if (deadline_ == Instant::max()) begin(hooks.now());
    return deadline_;
  }
  // A look at the clock. Time in which this caller did not look was not waited: it was stopped, perhaps with
  // all others, and blames nobody for it.
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
  Instant looked_{0};  // since the deadline has begun
  bool crowded_;
  AtDeadline at_deadline_;
  bool interruptible_ = true;
};

}  // namespace muster::client
