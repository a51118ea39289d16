#include "api/client/direct/planning.hpp"

#include "api/base/dtype.hpp"
#include "api/client/direct/algorithms.hpp"
#include "api/client/direct/shared_target.hpp"

#include <algorithm>

namespace muster::client {
namespace {

bool stands_end_to_end(const std::vector<Block>& blocks) {
  std::uint64_t end = 0;
  for (const Block& block : blocks) {
    if (block.count > 0 && block.offset != end) return false;
    end += block.count;
  }
  return true;
}

}  // namespace

DirectPlan make_direct_plan(std::uint64_t handle, const Described& described, Channel& channel,
                            const Machine& machine, std::uint32_t cores) {
  const auto ranks = static_cast<std::int32_t>(channel.members());
  const std::size_t element = dtype_bytes(described.what.dtype);
  DirectPlan plan;
  plan.element = element;
  plan.handle = handle;
  plan.channel = &channel;
  plan.deadline = described.deadline;
  plan.what = described.what;
  plan.mine = described.mine;
  plan.signature = signature_of(plan.what, plan.mine, ranks);
  plan.choice = choose(plan.what, ranks, machine);
  plan.home = described.home;
  plan.sends = described.sends;
  plan.end_to_end = stands_end_to_end(plan.mine.source_blocks);
  plan.crowded = machine.local_ranks > std::min(machine.cores, cores);
  plan.pairwise = is_pairwise(plan.what.op);
  plan.given_bytes = given_count(plan.mine) * element;
  plan.got_bytes = got_count(plan.mine) * element;
  plan.target_bytes =
      plan.choice.algorithm == Algorithm::kShared ? shared_bytes(plan) : got_count(plan.mine) * element;
  if (has_agreed_blocks(plan.what.op) && has_source_blocks(plan.what.op, false))
    for (std::uint32_t i = 0; i < channel.index(); ++i)
      plan.my_offset += count_of(entries_of(plan.what, plan.mine.source_blocks, i)) * element;
  const bool uneven = !plan.what.counts.empty();
  const auto dtype = static_cast<std::uint8_t>(plan.what.dtype | (uneven ? shm::kRecordUneven : 0));
  plan.record = {shm::pack_what({channel.line(), static_cast<std::uint8_t>(plan.what.op), dtype, 0}),
                 plan.given_bytes, plan.got_bytes};
  plan.body = body_of(plan.what, plan.choice);
  if (plan.choice.path == Path::kDirect &&
      row_of(plan.choice.algorithm).payload == AlgorithmRow::Payload::kInLine)
    prepare_small(plan);
  return plan;
}

}  // namespace muster::client
