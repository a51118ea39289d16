#include "api/client/units/all_gather.hpp"

#include <muster/kernels.h>

namespace muster::client {

using GatherFrom = shard::UnitOperations::GatherFrom;

Status UnitAllGather::allocate(muster_buffer shards) {
  shards_ = shards;
  if (!facts_.copies) return {};
  MUSTER_ASSIGN_OR_RETURN(copy_, copies_.buffer(facts_.copy_bytes));
  return {};
}

Status UnitAllGather::prepare(muster_range whole, muster_range slice, muster_group slice_group) {
  const muster_range own{facts_.copies ? copy_ : shards_, 0};
  whole_ = facts_.shard.ranks > 1 && !facts_.shares ? whole : own;
  gather_ = 0;
  copy_plans_.clear();
  MUSTER_RETURN_IF_ERROR(plan_copies());
  if (facts_.shard.ranks == 1) return {};
  MUSTER_ASSIGN_OR_RETURN(gather_, plan_gather(facts_.shard.group, own, facts_.whole_pieces()));
  return facts_.slice_ranks == 0 ? Status() : plan_slices(slice, slice_group);
}

Status UnitAllGather::release() {
  MUSTER_RETURN_IF_ERROR(plans_.release());
  return copies_.release();
}

Result<muster_plan> UnitAllGather::plan_gather(muster_group group, muster_range source,
                                               const UnitFacts::Pieces& pieces) {
  const Blocks blocks(pieces);
  muster_collective c = MUSTER_COLLECTIVE_INIT;
  c.op = MUSTER_ALL_GATHER;
  c.group = group;
  c.dtype = facts_.element;
  c.source = source;
  c.target = whole_;
  c.target_blocks = blocks.get();
  c.tag = facts_.tag;
  c.site = facts_.name.c_str();
  return plans_.plan(c);
}

// One copy for neighbours of equal dtypes.
Status UnitAllGather::plan_copies() {
  const std::vector<std::size_t>& order = facts_.order;
  for (std::size_t k = 0; facts_.copies && k < order.size();) {
    const UnitFacts::Parameter& first = facts_.parameters[order[k]];
    std::int64_t elements = 0;
    for (; k < order.size() && facts_.parameters[order[k]].dtype == first.dtype &&
           facts_.parameters[order[k]].whole_dtype == first.whole_dtype;
         ++k)
      elements += facts_.parameters[order[k]].places.shard_elements();
    if (elements == 0) continue;
    MUSTER_ASSIGN_OR_RETURN(
        const auto plan,
        plans_.plan(muster_copy(muster_view1(shards_, first.shard_at, first.dtype, elements),
                                muster_view1(copy_, first.copy_at, first.whole_dtype, elements))));
    copy_plans_.push_back(plan);
  }
  return {};
}

// A slice is taken by a reduction over this rank alone, which takes its block in pieces.
Status UnitAllGather::plan_slices(muster_range slice, muster_group group) {
  const UnitFacts::Pieces slices = facts_.slice_pieces();
  MUSTER_ASSIGN_OR_RETURN(gather_slices_, plan_gather(group, slice, slices));
  const Blocks block(
      UnitFacts::Pieces{slices[static_cast<std::size_t>(facts_.shard.coordinate) % slices.size()]});
  muster_collective c = MUSTER_COLLECTIVE_INIT;
  c.op = MUSTER_REDUCE_SCATTER;
  c.group = MUSTER_GROUP_SELF;
  c.dtype = facts_.element;
  c.redop = MUSTER_SUM;
  c.source = whole_;
  c.source_blocks = block.get();
  c.target = slice;
  c.site = facts_.name.c_str();
  MUSTER_ASSIGN_OR_RETURN(slice_, plans_.plan(c));
  return {};
}

Result<muster_point> UnitAllGather::gather(SetLanes& lanes, GatherFrom from,
                                           std::span<const muster_point> waits) {
  if (from == GatherFrom::kSlices) return lanes.start(gather_slices_, MUSTER_LANE_GATHER, waits);
  std::vector<muster_point> before(waits.begin(), waits.end());
  if (from == GatherFrom::kChangedShards)
    for (const muster_plan copy : copy_plans_) {
      MUSTER_ASSIGN_OR_RETURN(const muster_point copied, lanes.start(copy, MUSTER_LANE_GATHER, before));
      before = {copied};
    }
  if (gather_ == 0) return lanes.join(MUSTER_LANE_GATHER, before);
  return lanes.start(gather_, MUSTER_LANE_GATHER, before);
}

Result<muster_point> UnitAllGather::slice(SetLanes& lanes, std::span<const muster_point> waits) {
  return lanes.start(slice_, MUSTER_LANE_GATHER, waits);
}

}  // namespace muster::client
