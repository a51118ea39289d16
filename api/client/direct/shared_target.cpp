#include "api/client/direct/shared_target.hpp"

#include <algorithm>

namespace muster::client {
namespace {

constexpr std::uint64_t kLineBytes = 64;

}  // namespace

SharedPart part_of(std::uint64_t total, std::uint64_t members, std::uint64_t index) {
  const std::uint64_t even = (total / members / kLineBytes + 1) * kLineBytes;
  const std::uint64_t first = std::min(total, even * index);
  return {first, std::min(even, total - first)};
}

bool brings_block(const DirectPlan& plan) {
  const auto entries =
      entries_of(plan.what, plan.mine.target_blocks, static_cast<std::size_t>(plan.mine.index));
  bool lies_there = true;
  for_each_fragment(entries, 0, count_of(entries), [&](const Block::Fragment& fragment) {
    const std::uint64_t from = own_offset(plan.mine.source_blocks, fragment);
    lies_there = lies_there && plan.mine.source + from * plan.element ==
                                   plan.mine.target + fragment.cut_offset * plan.element;
  });
  return !lies_there;
}

std::uint64_t shared_bytes(const DirectPlan& plan) {
  const std::size_t element = plan.element;
  const Channel& channel = *plan.channel;
  if (!has_target_blocks(plan.what.op, false))
    return part_of(plan.what.count * element, channel.members(), channel.index()).bytes;
  return brings_block(plan) ? given_count(plan.mine) * element : 0;
}

}  // namespace muster::client
