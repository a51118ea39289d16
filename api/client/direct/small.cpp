// Algorithm::kSmall: a member's contribution travels with its arrival, in the slot's header. There is one
// meeting; then each member finishes alone, from its own copies of the slots.
#include "api/base/fault_point.hpp"
#include "api/client/direct/algorithms.hpp"
#include "kernels/math/part.hpp"
#include "kernels/math/reduce.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace muster::client {
namespace {

static_assert(kSmallBytesMax == shm::kInlineBytes);

// At most kSmallBytesMax bytes, in two pieces that overlap where they must.
template<class Piece>
void copy_twice(std::byte* to, const std::byte* from, std::size_t bytes) {
  Piece first;
  Piece last;
  std::memcpy(&first, from, sizeof first);
  std::memcpy(&last, from + bytes - sizeof last, sizeof last);
  std::memcpy(to, &first, sizeof first);
  std::memcpy(to + bytes - sizeof last, &last, sizeof last);
}
void copy_few(std::byte* to, const std::byte* from, std::size_t bytes) {
  using Half = std::array<std::uint64_t, 2>;
  if (bytes >= sizeof(Half)) return copy_twice<Half>(to, from, bytes);
  if (bytes >= 8) return copy_twice<std::uint64_t>(to, from, bytes);
  if (bytes >= 4) return copy_twice<std::uint32_t>(to, from, bytes);
  for (std::size_t i = 0; i < bytes; ++i) to[i] = from[i];
}

// Several blocks, or one in pieces.
void give_blocks(const DirectPlan& plan, std::byte* to) {
  for (const Block& block : plan.mine.source_blocks) {
    copy_few(to, plan.mine.source + block.offset * plan.element, block.count * plan.element);
    to += block.count * plan.element;
  }
}

std::byte* target(const DirectPlan& plan, const Block& block) {
  return plan.mine.target + block.offset * plan.element;
}

// Copies `from`, end to end, to those entries of the target.
void deliver(const DirectPlan& plan, std::span<const Block> entries, const std::byte* from) {
  for (const Block& entry : entries) {
    const std::size_t bytes = entry.count * plan.element;
    copy_few(target(plan, entry), from, bytes);
    from += bytes;
  }
}

// Reduces all kSmallBytesMax bytes of the payloads. Only the members' elements are copied to the target.
void reduce(const DirectPlan& plan) {
  plan.small.reducer(plan.small.reduction);
  copy_few(target(plan, plan.mine.target_blocks.front()), plan.small.line.data() + plan.my_offset,
           plan.got_bytes);
}
void reduce_into_pieces(const DirectPlan& plan) {
  plan.small.reducer(plan.small.reduction);
  deliver(plan, plan.mine.target_blocks, plan.small.line.data() + plan.my_offset);
}

void gather(const DirectPlan& plan) {
  const auto& blocks = plan.mine.target_blocks;
  for (std::uint32_t i = 0; i < blocks.size(); ++i)
    copy_few(target(plan, blocks[i]), plan.channel->arrivals().of(i).inside, blocks[i].count * plan.element);
}
void gather_into_pieces(const DirectPlan& plan) {
  for (std::uint32_t i = 0; i < plan.channel->members(); ++i)
    deliver(plan, entries_of(plan.what, plan.mine.target_blocks, i), plan.channel->arrivals().of(i).inside);
}

void take_from_root(const DirectPlan& plan) {
  const Block& to = plan.mine.target_blocks.front();
  const std::byte* given = plan.channel->arrivals().of(static_cast<std::uint32_t>(plan.what.root)).inside;
  copy_few(target(plan, to), given, to.count * plan.element);
}

}  // namespace

bool begin_small(const DirectPlan& plan) {
  Channel& channel = *plan.channel;
  if (!channel.begin()) return false;
  std::byte* given = channel.arrivals().draft().inside;
  if (plan.small.source != nullptr)
    copy_few(given, plan.small.source, plan.small.bytes);
  else
    give_blocks(plan, given);
  MUSTER_FAULT_POINT("payload.packed");
  return true;
}

Outcome run_small(const DirectPlan& plan, DirectMemory& memory, Stages& /*stages*/, WaitPolicy& policy) {
  if (!begin_small(plan)) return Outcome::kRefused;
  const Outcome met = meet(plan, memory, policy);
  if (met == Outcome::kDone && plan.small.take != nullptr) plan.small.take(plan);
  return met;
}

void prepare_small(DirectPlan& plan) {
  DirectPlan::Small& small = plan.small;
  const auto& sources = plan.mine.source_blocks;
  if (sources.size() == 1) {
    small.source = plan.mine.source + sources.front().offset * plan.element;
    small.bytes = plan.given_bytes;
  }
  const auto& targets = plan.mine.target_blocks;
  if (plan.got_bytes == 0 || targets.empty() || plan.mine.target == nullptr) return;
  const bool in_pieces = !plan.what.first_piece.empty();
  small.take =
      has_target_blocks(plan.what.op, false) ? in_pieces ? gather_into_pieces : gather : take_from_root;
  if (!has_reduction(plan.what.op)) return;
  small.take = in_pieces ? reduce_into_pieces : reduce;
  small.reducer = math::reducer_of(plan.what.dtype, plan.what.redop);
  const math::Givers givers = math::givers_of(plan.what, 0, plan.channel->members());
  for (std::uint32_t k = 0; k < givers.count; ++k)
    small.sources.push_back(plan.channel->arrivals().of(givers.first + k).inside);
  small.line.resize(kSmallBytesMax);
  small.reduction = {plan.what.redop,   small.sources.data(),          small.sources.size(),
                     small.line.data(), kSmallBytesMax / plan.element, plan.what.scale};
}

}  // namespace muster::client
