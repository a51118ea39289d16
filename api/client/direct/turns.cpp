// Algorithm::kTurns: as Algorithm::kSmall, where ranks take turns on a core. A rank that waits gives its core
// away at once, which costs a microsecond. That is in vain if all ranks of this core have arrived: then the
// others on it wait as well. So each member tells on which core it arrived, and a rank whose missing peers
// all arrived elsewhere the last time keeps its core and looks for a while.
#include "api/client/direct/algorithms.hpp"

#include <cstdint>

namespace muster::client {
namespace {

using Kind = shm::PayloadLocation::Kind;

// About four turns: whoever is missing then waits for its own turn.
constexpr int kLooks = 200;

bool has_arrived(const Channel& channel, std::uint32_t i) {
  return look(&channel.arrivals().slot_of(i).position) == channel.at().position;
}

// Where the member arrived the last time; a core of ours if it did not tell.
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

// Ranks seldom move to another core, and the question costs as much as the rest of the announcement.
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
