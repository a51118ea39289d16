// Algorithm::kWhole: each member reads the contributions that it needs and finishes alone. One meeting, and a
// second one where large contributions are read where they are.
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

// What every body needs.
struct Run {
  const DirectPlan& plan;
  Payloads& payloads;
  std::size_t element;
  std::uint32_t me;
  std::uint32_t members;

  std::size_t streaming_from(std::uint64_t target_bytes) const {
    return math::streaming_from(target_bytes * members);
  }
  // The others first in line after this member, so that not all read the same one at once; itself last.
  std::uint32_t turn(std::uint32_t k) const { return (me + 1 + k) % members; }
};

// What is for this member in the contribution of member `from`.
const std::byte* given_by(const Run& run, std::uint32_t from, std::uint64_t bytes) {
  const bool cut = has_source_blocks(run.plan.what.op, true);
  return cut ? run.payloads.block_for_me(from, bytes) : run.payloads.read(from, 0, bytes);
}

std::byte* target_of(const Run& run, const Block& block) {
  return run.plan.mine.target + block.offset * run.element;
}

// Folds one equally long piece of every member into this member's target.
Outcome fold(const Run& run) {
  const Block& to = run.plan.mine.target_blocks.front();
  if (to.count == 0) return Outcome::kDone;
  const std::uint64_t bytes = to.count * run.element;
  std::array<const std::byte*, kRanksOnNodeMax> sources;
  for (std::uint32_t i = 0; i < run.members; ++i) {
    sources[i] = given_by(run, i, bytes);
    if (sources[i] == nullptr) return Outcome::kCorrupt;
  }
  std::byte* const target = target_of(run, to);
  math::carry_out(run.plan.what, std::span(sources).first(run.members), std::span(&target, 1), to.count,
                  run.streaming_from(bytes));
  MUSTER_FAULT_POINT("whole.folded");
  return run.payloads.all_intact() ? Outcome::kDone : Outcome::kBroken;
}

// Takes one block from the one member that gives it.
Outcome take(const Run& run, std::uint32_t from, const Block& to) {
  if (to.count == 0) return Outcome::kDone;
  const std::byte* const source = given_by(run, from, to.count * run.element);
  if (source == nullptr) return Outcome::kCorrupt;
  std::byte* const target = target_of(run, to);
  const std::uint64_t all_bytes = got_count(run.plan.mine) * run.element;
  math::carry_out(run.plan.what, std::span(&source, 1), std::span(&target, 1), to.count,
                  source == target ? math::kNeverStream : run.streaming_from(all_bytes));
  MUSTER_FAULT_POINT("block.copied");
  return run.payloads.intact(from) ? Outcome::kDone : Outcome::kBroken;
}

// Once all have arrived and agree. They look at the memory that they have read; of slots one look at the end
// tells of all.
Outcome take_part(const Run& run) {
  const auto& blocks = run.plan.mine.target_blocks;
  if (blocks.empty() || run.plan.mine.target == nullptr) return Outcome::kDone;
  if (has_reduction(run.plan.what.op)) return fold(run);
  if (gives_at_root(run.plan.what.op))
    return take(run, static_cast<std::uint32_t>(run.plan.what.root), blocks.front());
  // Block i is from member i.
  for (std::uint32_t k = 0; k < run.members; ++k) {
    const std::uint32_t i = run.turn(k);
    if (const Outcome taken = take(run, i, blocks[i]); taken != Outcome::kDone) return taken;
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
