// Patience: how a caller waits for its peers. First it looks, then it gives its core away between looks, then
// it sleeps.
//
// A look costs nothing and finds a peer that is about to come on another core (a cache line takes 50 ns).
// Where ranks outnumber cores the peer may need this very core, so the first thing to do is to yield it: a
// meeting is then a context switch, not a time slice. A sleeper is woken by the peer it sleeps for (see
// Channel); it also wakes by itself every few milliseconds to see whether the group has a verdict or its
// deadline has come, or it was interrupted, so no wake can be lost for long and an interrupt needs none.
#pragma once

#include "api/base/clock.hpp"

#include <bit>
#include <cstdint>

namespace muster::client {

enum class Meeting : std::uint8_t {
  kMet,
  kBroken,  // the group has a verdict
  kAlone,   // the engine is gone
  kInterrupted,
};

class Channel;

// What a waiting caller looks at besides its peers.
//
// Owns    nothing.
// Thread  the session's.
// Bound   engine_gone: one system call; overdue: one question to the engine.
// Fails   never.
class Vigil {
 public:
  virtual ~Vigil() = default;
  virtual Instant now() const = 0;
  // The engine's end of the session's socket is closed.
  virtual bool engine_gone() = 0;
  // The deadline of what the channel waits for (Channel::wanted) has passed: the engine finds out who is
  // missing and breaks the group, unless all have come by now.
  virtual void overdue(const Channel& channel) = 0;
  // Somebody wants the caller out of its wait. A look; raised from another thread or a signal handler.
  virtual bool interrupted() const { return false; }
};

// What happens at the deadline: the engine is asked who is to blame, or the caller goes on without.
enum class AtDeadline : std::uint8_t { kAsk, kGiveUp };

// Owns    the bounds of one operation's waits.
// Thread  the session's.
// Bound   deadline; counted from the first wait that is not met at once, so that nothing in a hurry reads a
//         clock.
// Fails   never.
class Patience {
 public:
  Patience(Nanos timeout, bool crowded, AtDeadline at_deadline = AtDeadline::kAsk)
      : timeout_(timeout), crowded_(crowded), at_deadline_(at_deadline) {}
  Patience giving_up() const {
    Patience patience(timeout_, crowded_, AtDeadline::kGiveUp);
    patience.interruptible_ = interruptible_;
    return patience;
  }
  // For a wait that is no operation of a group: nobody would take the interrupt.
  Patience undisturbed() const {
    Patience patience = *this;
    patience.interruptible_ = false;
    return patience;
  }

  // The deadline has been dealt with: begin it again.
  void renew() { deadline_ = Instant::max(); }

  bool crowded() const { return crowded_; }
  bool gives_up() const { return at_deadline_ == AtDeadline::kGiveUp; }
  bool interruptible() const { return interruptible_; }
  Instant deadline(const Vigil& vigil) {
    if (deadline_ == Instant::max()) begin(vigil.now());
    return deadline_;
  }
  // A look at the clock. Time in which this caller did not look was not waited: it was stopped, perhaps with
  // all others, and blames nobody for it.
  bool over(const Vigil& vigil) {
    const Instant now = vigil.now();
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

// Tells the core that this is a loop of looks.
inline void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// The line will be written soon: it is fetched from whoever has it, so that the store finds it here.
inline void fetch_to_write(const void* line) {
#if defined(__x86_64__)
  asm volatile("prefetchw %0" : : "m"(*static_cast<const char*>(line)));
#else
  __builtin_prefetch(line, 1);
#endif
}

// The half of a word that changes with every value, which a futex can sleep on.
inline const std::uint32_t* lower_half(const std::uint64_t* word) {
  const auto* halves = reinterpret_cast<const std::uint32_t*>(word);
  return std::endian::native == std::endian::little ? halves : halves + 1;
}

}  // namespace muster::client
