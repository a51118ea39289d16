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
  const Block& from = plan.mine.source_blocks.front();
  const Block& to = plan.mine.target_blocks[static_cast<std::size_t>(plan.mine.index)];
  const std::size_t element = plan.element;
  return to.count > 0 && plan.mine.source + from.offset * element != plan.mine.target + to.offset * element;
}

std::uint64_t shared_bytes(const DirectPlan& plan) {
  const std::size_t element = plan.element;
  const Channel& channel = *plan.channel;
  if (!has_target_blocks(plan.what.op, false))
    return part_of(plan.what.count * element, channel.members(), channel.index()).bytes;
  return brings_block(plan) ? plan.mine.target_blocks[channel.index()].count * element : 0;
}

}  // namespace muster::client
