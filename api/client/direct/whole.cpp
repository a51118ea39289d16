// Algorithm::kWhole: each member reads the contributions that it needs and finishes alone. One meeting, and a
// second one where large contributions are read where they are.
#include "api/base/fault_point.hpp"
#include "api/base/node_limits.hpp"
#include "api/client/direct/algorithms.hpp"
#include "api/client/direct/payloads.hpp"
#include "kernels/math/copy.hpp"
#include "kernels/math/deliver.hpp"

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

// Folds one equally long piece of every member into this member's target.
template<class SourceOf>
Outcome fold(const Run& run, std::uint64_t count, SourceOf source_of) {
  std::array<const std::byte*, kRanksOnNodeMax> sources;
  for (std::uint32_t i = 0; i < run.members; ++i) {
    sources[i] = source_of(i);
    if (sources[i] == nullptr) return Outcome::kCorrupt;
  }
  const Share& mine = run.plan.mine;
  std::byte* const target = mine.target + mine.target_blocks.front().offset * run.element;
  math::reduce_to_all(run.plan.what.dtype, run.plan.what.redop, std::span(sources).first(run.members),
                      std::span(&target, 1), count, run.plan.what.scale,
                      run.streaming_from(count * run.element));
  MUSTER_FAULT_POINT("whole.folded");
  return run.payloads.all_intact() ? Outcome::kDone : Outcome::kBroken;
}

Outcome reduce_whole(const Run& run) {
  const std::uint64_t count = run.plan.what.count;
  if (run.plan.mine.target_blocks.empty() || count == 0) return Outcome::kDone;
  return fold(run, count, [&](std::uint32_t i) { return run.payloads.read(i, 0, count * run.element); });
}

Outcome reduce_scatter(const Run& run) {
  const std::uint64_t count = run.plan.mine.target_blocks.front().count;
  if (count == 0) return Outcome::kDone;
  return fold(run, count, [&](std::uint32_t i) { return run.payloads.block_for_me(i, count * run.element); });
}

Outcome take(const Run& run, std::uint32_t from, const Block& to, const std::byte* source) {
  const std::uint64_t bytes = to.count * run.element;
  if (bytes == 0) return Outcome::kDone;
  if (source == nullptr) return Outcome::kCorrupt;
  const std::uint64_t all_bytes = got_count(run.plan.mine) * run.element;
  std::byte* target = run.plan.mine.target + to.offset * run.element;
  math::copy(target, source, bytes, source == target ? math::kNeverStream : run.streaming_from(all_bytes));
  MUSTER_FAULT_POINT("block.copied");
  return run.payloads.intact(from) ? Outcome::kDone : Outcome::kBroken;
}

// ALL_GATHER, and GATHER at its root: block i is the whole contribution of member i.
Outcome collect(const Run& run) {
  const auto& blocks = run.plan.mine.target_blocks;
  if (blocks.empty()) return Outcome::kDone;
  for (std::uint32_t k = 0; k < run.members; ++k) {
    const std::uint32_t i = run.turn(k);
    const std::uint64_t bytes = blocks[i].count * run.element;
    const std::byte* source = bytes > 0 ? run.payloads.read(i, 0, bytes) : nullptr;
    if (const Outcome taken = take(run, i, blocks[i], source); taken != Outcome::kDone) return taken;
  }
  return Outcome::kDone;
}

Outcome broadcast(const Run& run) {
  const auto root = static_cast<std::uint32_t>(run.plan.what.root);
  const bool wants_none = run.plan.mine.target_blocks.empty() || run.plan.mine.target == nullptr;
  if (wants_none || run.plan.what.count == 0) return Outcome::kDone;
  const Block& to = run.plan.mine.target_blocks.front();
  return take(run, root, to, run.payloads.read(root, 0, to.count * run.element));
}

Outcome scatter(const Run& run) {
  const auto root = static_cast<std::uint32_t>(run.plan.what.root);
  const Block& to = run.plan.mine.target_blocks.front();
  if (to.count == 0) return Outcome::kDone;
  return take(run, root, to, run.payloads.block_for_me(root, to.count * run.element));
}

Outcome all_to_all(const Run& run) {
  const auto& blocks = run.plan.mine.target_blocks;
  for (std::uint32_t k = 0; k < run.members; ++k) {
    const std::uint32_t i = run.turn(k);
    const std::uint64_t bytes = blocks[i].count * run.element;
    const std::byte* source = bytes > 0 ? run.payloads.block_for_me(i, bytes) : nullptr;
    if (const Outcome taken = take(run, i, blocks[i], source); taken != Outcome::kDone) return taken;
  }
  return Outcome::kDone;
}

// Once all have arrived and agree. They look at the memory that they have read; of slots one look at the end
// tells of all.
Outcome take_part(const Run& run) {
  switch (run.plan.what.op) {
    case MUSTER_ALL_REDUCE:
    case MUSTER_REDUCE:
      return reduce_whole(run);
    case MUSTER_REDUCE_SCATTER:
      return reduce_scatter(run);
    case MUSTER_ALL_GATHER:
    case MUSTER_GATHER:
      return collect(run);
    case MUSTER_BROADCAST:
      return broadcast(run);
    case MUSTER_SCATTER:
      return scatter(run);
    default:
      return all_to_all(run);
  }
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
