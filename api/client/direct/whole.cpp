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

// The context of the functions below.
struct Run {
  const DirectPlan& plan;
  Payloads& payloads;
  std::size_t element;
  std::uint32_t me;
  std::uint32_t members;

  std::size_t streaming_from(std::uint64_t target_bytes) const {
    return math::streaming_from(target_bytes * members);
  }
  // The order of reading: the members after this one, and itself last. So the members do not all read the
  // same one at once.
  std::uint32_t turn(std::uint32_t k) const { return (me + 1 + k) % members; }
};

// The part for this member in the contribution of member `from`.
const std::byte* given_by(const Run& run, std::uint32_t from, const Block::Fragment& fragment) {
  const std::uint64_t bytes = fragment.count * run.element;
  if (!run.plan.what.first_piece.empty()) return run.payloads.fragment(from, fragment);
  const bool cut = has_source_blocks(run.plan.what.op, true);
  return cut ? run.payloads.block_for_me(from, bytes) : run.payloads.read(from, 0, bytes);
}

// Computes a fragment of block `block` of this member's target, from byte `to` on.
Outcome take(const Run& run, std::uint32_t block, const Block::Fragment& fragment, std::uint64_t to) {
  const math::Givers givers = math::givers_of(run.plan.what, block, run.members);
  std::array<const std::byte*, kRanksOnNodeMax> sources;
  for (std::uint32_t k = 0; k < givers.count; ++k) {
    sources[k] = given_by(run, givers.first + k, fragment);
    if (sources[k] == nullptr) return Outcome::kCorrupt;
  }
  std::byte* const target = run.plan.mine.target + to;
  const bool reduces = has_reduction(run.plan.what.op);
  const bool lies_there = !reduces && sources[0] == target;
  math::carry_out(run.plan.what, std::span(sources).first(givers.count), std::span(&target, 1),
                  fragment.count, lies_there ? math::kNeverStream : run.streaming_from(run.plan.got_bytes));
  if (reduces) MUSTER_FAULT_POINT("whole.folded");
  if (!reduces) MUSTER_FAULT_POINT("block.copied");
  const bool intact = reduces ? run.payloads.all_intact() : run.payloads.intact(givers.first);
  return intact ? Outcome::kDone : Outcome::kBroken;
}

// Computes block `block` of this member's target.
Outcome take(const Run& run, std::uint32_t block) {
  const Collective& what = run.plan.what;
  const auto& mine = run.plan.mine;
  if (what.first_piece.empty()) {
    const Block& to = mine.target_blocks[block];
    return to.count == 0 ? Outcome::kDone : take(run, block, {0, to.count, 0, 0}, to.offset * run.element);
  }
  const bool of_target = has_target_blocks(what.op, false);
  const auto entries =
      of_target ? entries_of(what, mine.target_blocks, block) : entries_of(what, mine.source_blocks, run.me);
  Outcome outcome = Outcome::kDone;
  for_each_fragment(entries, 0, count_of(entries), [&](const Block::Fragment& fragment) {
    if (outcome != Outcome::kDone) return;
    const std::uint64_t to = of_target ? fragment.cut_offset : own_offset(mine.target_blocks, fragment);
    outcome = take(run, block, fragment, to * run.element);
  });
  return outcome;
}

// Runs once all have arrived and agree. take() checks the stages and arenas that it has read; run_whole()
// checks all slots once, at the end.
Outcome take_part(const Run& run) {
  if (run.plan.mine.target == nullptr) return Outcome::kDone;
  const bool cut = !run.plan.mine.target_blocks.empty() &&
                   has_target_blocks(run.plan.what.op, run.plan.mine.index == run.plan.what.root);
  const std::uint32_t blocks = cut ? run.members : run.plan.mine.target_blocks.empty() ? 0 : 1;
  for (std::uint32_t k = 0; k < blocks; ++k) {
    const std::uint32_t block = cut ? run.turn(k) : 0;
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
