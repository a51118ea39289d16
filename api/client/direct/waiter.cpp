#include "api/client/direct/waiter.hpp"

#include "api/base/fault_point.hpp"
#include "api/shm/futex.hpp"

#include <algorithm>
#include <bit>

#include <sched.h>

namespace muster::client {
namespace {

using shm::Published;
using shm::Untrusted;

constexpr int kYields = 1000;         // about 0.5 ms if no other thread wants the core, else longer
constexpr int kYieldsPerGlance = 16;  // between checks of epoch and clock
constexpr Nanos kNapMax = std::chrono::milliseconds(5);
constexpr int kNapsPerCheck = 20;  // between checks whether the engine lives

// The half of a word that changes with every value, which a futex can sleep on.
const std::uint32_t* lower_half(const std::uint64_t* word) {
  const auto* halves = reinterpret_cast<const std::uint32_t*>(word);
  return std::endian::native == std::endian::little ? halves : halves + 1;
}

}  // namespace

Waiter::Waiter(shm::DirectHeader* own, WaitHooks& hooks)
    : own_(own), hooks_(hooks), enrolled_(shm::enrol_for_fences()) {}

// The publishing side of a Dekker handshake (api/shm/fence.hpp). A peer sets its sleep flag before it reads
// the word a last time. Its heavy fence replaces the full fence that this side lacks between store and load.
void Waiter::publish(std::uint64_t* word, std::uint64_t value, std::span<const Peer> listeners) {
  Published<std::uint64_t>(word).store_release(value);
  shm::light_fence(enrolled_);
  MUSTER_FAULT_POINT("word.published");
  std::uint32_t asleep = 0;
  for (const Peer& peer : listeners) asleep |= Untrusted<std::uint32_t>(&peer.header->asleep).load();
  if (asleep == 0) return;
  MUSTER_FAULT_POINT("word.waking");
  shm::futex_wake(lower_half(word));
}

Waited Waiter::wait_long(const std::uint64_t* word, const Condition& condition, WaitPolicy& policy) {
  MUSTER_FAULT_POINT("meet.looking");
  for (int yields = 0; yields < kYields; ++yields) {
    if (yields % kYieldsPerGlance == 0)
      if (const auto end = glance(word, condition, policy)) return *end;
    MUSTER_FAULT_POINT("meet.yielding");
    ::sched_yield();
    if (condition.reached(look(word))) return Waited::kMet;
  }
  for (int naps = 1;; ++naps) {
    if (const auto end = glance(word, condition, policy)) return *end;
    if (naps % kNapsPerCheck == 0 && hooks_.engine_gone()) return Waited::kAlone;
    nap(word, condition, policy);
    if (condition.reached(look(word))) return Waited::kMet;
  }
}

// Reads the word after the epoch, so that an arrival from before the end counts.
std::optional<Waited> Waiter::glance(const std::uint64_t* word, const Condition& condition,
                                     WaitPolicy& policy) {
  const bool hopeless = condition.hopeless();
  if (condition.reached(look(word))) return Waited::kMet;
  if (hopeless) return Waited::kEnded;
  if (policy.interruptible() && hooks_.interrupted()) return Waited::kInterrupted;
  if (policy.over(hooks_)) {
    if (policy.gives_up()) return Waited::kEnded;
    Wanted wanted = condition.wanted();
    wanted.deadline = policy.timeout();
    hooks_.overdue(wanted);
    // A request to an engine that does not answer takes the session's whole timeout, so send no second one.
    if (hooks_.engine_gone()) return Waited::kAlone;
    policy.renew();
  }
  return std::nullopt;
}

void Waiter::nap(const std::uint64_t* word, const Condition& condition, WaitPolicy& policy) {
  Published<std::uint32_t>(&own_->asleep).store(1);
  shm::heavy_fence();
  MUSTER_FAULT_POINT("meet.falling_asleep");
  const std::uint64_t seen = look(word);
  const Nanos left = policy.deadline(hooks_) - hooks_.now();
  if (!condition.reached(seen) && left.count() > 0)
    shm::futex_wait(lower_half(word), static_cast<std::uint32_t>(seen), std::min(kNapMax, left));
  MUSTER_FAULT_POINT("meet.woken");
  Published<std::uint32_t>(&own_->asleep).store(0);
  Published<std::uint64_t>(&own_->sleeps).add(1);
}

}  // namespace muster::client
