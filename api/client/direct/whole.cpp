// Algorithm::kWhole: each member reads the contributions that it needs and finishes alone. There is one
// meeting, and a second one if large contributions are read in place.
#include "api/base/fault_point.hpp"
#include "api/base/node_limits.hpp"
#include "api/client/direct/algorithms.hpp"
#include "api/client/direct/payloads.hpp"
#include "kernels/math/copy.hpp"
#include "kernels/math/part.hpp"

#include <array>
#include <span>

namespace muster::client {
namespace {

// What the functions below need.
struct Run {
  const DirectPlan& plan;
  Payloads& payloads;
  std::size_t element;
  std::uint32_t me;
  std::uint32_t members;

  std::size_t streaming_from(std::uint64_t target_bytes) const {
    return math::streaming_from(target_bytes * members);
  }
  // The order of reading: the members after this one, and itself last. So not all read the same one at once.
  std::uint32_t turn(std::uint32_t k) const { return (me + 1 + k) % members; }
};

// What is for this member in the contribution of member `from`.
const std::byte* given_by(const Run& run, std::uint32_t from, std::uint64_t bytes) {
  const bool cut = has_source_blocks(run.plan.what.op, true);
  return cut ? run.payloads.block_for_me(from, bytes) : run.payloads.read(from, 0, bytes);
}

// Computes block `block` of this member's target.
Outcome take(const Run& run, std::uint32_t block) {
  const Block& to = run.plan.mine.target_blocks[block];
  if (to.count == 0) return Outcome::kDone;
  const math::Givers givers = math::givers_of(run.plan.what, block, run.members);
  std::array<const std::byte*, kRanksOnNodeMax> sources;
  for (std::uint32_t k = 0; k < givers.count; ++k) {
    sources[k] = given_by(run, givers.first + k, to.count * run.element);
    if (sources[k] == nullptr) return Outcome::kCorrupt;
  }
  std::byte* const target = run.plan.mine.target + to.offset * run.element;
  const bool reduces = has_reduction(run.plan.what.op);
  const bool lies_there = !reduces && sources[0] == target;
  math::carry_out(run.plan.what, std::span(sources).first(givers.count), std::span(&target, 1), to.count,
                  lies_there ? math::kNeverStream : run.streaming_from(run.plan.got_bytes));
  if (reduces) MUSTER_FAULT_POINT("whole.folded");
  if (!reduces) MUSTER_FAULT_POINT("block.copied");
  const bool intact = reduces ? run.payloads.all_intact() : run.payloads.intact(givers.first);
  return intact ? Outcome::kDone : Outcome::kBroken;
}

// Runs once all have arrived and agree. take() checks the stages and arenas that it has read; run_whole()
// checks all slots once, at the end.
Outcome take_part(const Run& run) {
  if (run.plan.mine.target == nullptr) return Outcome::kDone;
  const auto blocks = static_cast<std::uint32_t>(run.plan.mine.target_blocks.size());
  for (std::uint32_t k = 0; k < blocks; ++k) {
    const std::uint32_t block = blocks == 1 ? 0 : run.turn(k);
    if (const Outcome taken = take(run, block); taken != Outcome::kDone) return taken;
  }
  return Outcome::kDone;
}

}  // namespace

Outcome run_whole(const DirectPlan& plan, DirectMemory& memory, Stages& stages, WaitPolicy& policy) {
  Payloads payloads(plan, memory, stages, policy);
  if (const Outcome met = payloads.meet(); met != Outcome::kDone) return met;
  const Channel& channel = *plan.channel;
  const Outcome taken = take_part({plan, payloads, plan.element, channel.index(), channel.members()});
  if (taken != Outcome::kDone) return taken;
  return channel.sound() ? payloads.end() : Outcome::kBroken;
}

}  // namespace muster::client
