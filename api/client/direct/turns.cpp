// Algorithm::kTurns: Algorithm::kSmall where ranks take turns on a core. A rank that waits yields its core
// at once, which costs a microsecond. The yield gains nothing if all ranks of this core have arrived, because
// the others wait too. So each member announces the core on which it arrives. If all missing peers arrived
// on other cores the last time, a rank keeps its core and polls for a while.
#include "api/client/direct/algorithms.hpp"

#include <cstdint>

namespace muster::client {
namespace {

using Kind = shm::PayloadLocation::Kind;

// About four turns. A peer that is still missing then waits for a turn on its own core.
constexpr int kLooks = 200;

bool has_arrived(const Channel& channel, std::uint32_t i) {
  return look(&channel.arrivals().slot_of(i).position) == channel.at().position;
}

// Whether the member arrived on another core the last time. False if its core is not known.
bool arrives_elsewhere(const Channel& channel, std::uint32_t i, std::uint32_t core) {
  const shm::PayloadLocation told = channel.arrivals().of(i).location();
  return told.kind == Kind::kInline && told.index != core;
}

// `missing`: the first member that has not arrived.
void look_for_others(const Channel& channel, std::uint32_t missing) {
  const std::uint32_t core = channel.arrivals().of(channel.index()).location().index;
  for (std::uint32_t i = missing; i < channel.members(); ++i)
    if (i != channel.index() && !has_arrived(channel, i) && !arrives_elsewhere(channel, i, core)) return;
  int looks = kLooks;
  for (std::uint32_t i = missing; i < channel.members(); ++i)
    for (; i != channel.index() && !has_arrived(channel, i); Waiter::relax())
      if (--looks == 0) return;
}

// Looks up the core once in kAskedEvery operations. Ranks seldom move to another core, and the look-up costs
// as much as the rest of the announcement.
void tell_core(Channel& channel) {
  constexpr std::uint64_t kAskedEvery = 16;
  std::uint64_t& told = channel.arrivals().draft().location_bits;
  if (channel.at().position % kAskedEvery != 0 && shm::unpack_location(told).kind == Kind::kInline) return;
  told = shm::pack_location({Kind::kInline, channel.core() & shm::kLocationIndexMax, 0});
}

}  // namespace

Outcome run_turns(const DirectPlan& plan, DirectMemory& memory, Stages& /*stages*/, WaitPolicy& policy) {
  if (!begin_small(plan)) return Outcome::kRefused;
  Channel& channel = *plan.channel;
  tell_core(channel);
  come(plan, memory);
  const Outcome met = meet_others(plan, policy, look_for_others);
  if (met == Outcome::kDone && plan.small.take != nullptr) plan.small.take(plan);
  return met;
}

}  // namespace muster::client
