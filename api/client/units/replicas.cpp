#include "api/client/units/replicas.hpp"

#include "api/client/units/mesh_dims.hpp"

namespace muster::client {

// What the dim does not cut lies anywhere in the shards, and a broadcast has no pieces. So it is an
// all-gather in place, of which the first member alone gives anything.
Status ReplicaBroadcast::plan(const Unit& unit, const char* dim) {
  const UnitFacts& facts = unit.facts();
  std::int32_t ranks = 1;
  muster_group group = MUSTER_GROUP_SELF;
  MUSTER_RETURN_IF_ERROR(status_of(muster_mesh_coords(plans_.session(), dim, nullptr, &ranks)));
  if (ranks == 1) return {};
  MUSTER_RETURN_IF_ERROR(status_of(muster_mesh_group(plans_.session(), dim, &group)));
  Pieces pieces(static_cast<std::size_t>(ranks));
  for (const std::size_t i : facts.order)
    if (!is_cut_by(facts.parameters[i], dim)) {
      const std::vector<muster_piece> shard = facts.shard_pieces(facts.parameters[i]);
      pieces.front().insert(pieces.front().end(), shard.begin(), shard.end());
    }
  if (pieces.front().empty()) return {};
  const Blocks blocks(pieces);
  muster_collective c = MUSTER_COLLECTIVE_INIT;
  c.op = MUSTER_ALL_GATHER;
  c.group = group;
  c.dtype = MUSTER_U8;
  c.source = c.target = {unit.shards(), 0};
  c.target_blocks = blocks.get();
  c.site = facts.name.c_str();
  MUSTER_ASSIGN_OR_RETURN(const muster_plan made, plans_.plan(c));
  steps_.push_back(made);
  return {};
}

Status ReplicaBroadcast::prepare(std::span<const std::unique_ptr<Unit>> units) {
  for (const auto& unit : units)
    for (const UnitParameter& parameter : unit->facts().parameters)
      MUSTER_RETURN_IF_ERROR(check_dims(parameter));
  for (const char* dim : kDims)
    for (const auto& unit : units) MUSTER_RETURN_IF_ERROR(plan(*unit, dim));
  is_prepared_ = true;
  return {};
}

Result<muster_point> ReplicaBroadcast::start(UnitLanes& lanes, std::span<const std::unique_ptr<Unit>> units,
                                             bool shared, muster_point after) {
  if (shared && !is_prepared_) {
    MUSTER_RETURN_IF_ERROR(withdraw());  // what a call that failed has left
    MUSTER_RETURN_IF_ERROR(prepare(units));
  }
  muster_point done = after;
  for (const muster_plan step : steps_) {
    MUSTER_ASSIGN_OR_RETURN(done, lanes.start(step, UnitLane::kGather, std::span(&after, 1)));
  }
  return done;
}

Status ReplicaBroadcast::withdraw() {
  steps_.clear();
  is_prepared_ = false;
  return plans_.release();
}

}  // namespace muster::client
