// Waiter: how one member of a group publishes words to its peers, and waits for theirs.
//
// It sends the engine no message, except through WaitHooks at a deadline.
#pragma once

#include "api/client/direct/peer.hpp"
#include "api/client/direct/wait_policy.hpp"
#include "api/shm/direct.hpp"
#include "api/shm/fence.hpp"
#include "api/shm/untrusted.hpp"

#include <atomic>
#include <cstdint>
#include <optional>
#include <span>

namespace muster::client {

// Owns    the rank's sleep flag.
// Thread  the session's.
// Bound   a wait: the policy's deadline, which the engine's answer to overdue() renews.
// Fails   never.
class Waiter {
 public:
  // The condition that ends a wait for a word.
  //
  // Owns    nothing; lives as long as one wait.
  // Thread  the session's.
  // Bound   no system call, no wait of its own.
  // Fails   never.
  class Condition {
   public:
    virtual bool reached(std::uint64_t value) const = 0;
    // Whether the word will never meet the condition. Checked before the last read of the word.
    virtual bool hopeless() const { return false; }
    // The wait that overdue() reports to the engine at the deadline.
    virtual Wanted wanted() const = 0;

   protected:
    ~Condition() = default;
  };

  Waiter(shm::DirectHeader* own, WaitHooks& hooks);

  // Writes the word, and wakes the listeners that sleep on it.
  void publish(std::uint64_t* word, std::uint64_t value, std::span<const Peer> listeners);

  // Waits until the word meets the condition, or the wait ends in another way.
  template<class C>
  Waited wait(const std::uint64_t* word, const C& condition, WaitPolicy& policy) {
    for (int looks = policy.crowded() ? kCrowdedLooks : kLooks; looks > 0; --looks) {
      if (condition.reached(shm::Untrusted<std::uint64_t>(word).load_acquire())) return Waited::kMet;
      relax();
    }
    return wait_long(word, condition, policy);
  }

  // Orders earlier reads before later ones, together with the engine's heavy fence.
  void fence() const {
    std::atomic_thread_fence(std::memory_order_acquire);
    shm::light_fence(enrolled_);
  }

  // Tells the core that this is a spin loop.
  static void relax();
  Instant now() const { return hooks_.now(); }
  std::uint32_t core() const { return hooks_.core(); }
  bool engine_gone() const { return hooks_.engine_gone(); }

 private:
  static constexpr int kLooks = 2000;  // about 40 µs
  static constexpr int kCrowdedLooks = 2;

  Waited wait_long(const std::uint64_t* word, const Condition& condition, WaitPolicy& policy);
  std::optional<Waited> glance(const std::uint64_t* word, const Condition& condition, WaitPolicy& policy);
  void nap(const std::uint64_t* word, const Condition& condition, WaitPolicy& policy);

  shm::DirectHeader* own_;
  WaitHooks& hooks_;
  bool enrolled_;  // publishing needs no fence of its own
};

inline void Waiter::relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace muster::client
