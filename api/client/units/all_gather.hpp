// UnitGathering: brings a unit's shards, or slices of it, into its place.
#pragma once

#include "api/base/shard/schedule.hpp"
#include "api/client/set/lanes.hpp"
#include "api/client/set/resources.hpp"
#include "api/client/units/facts.hpp"

#include <muster/muster.h>

#include <cstdint>
#include <span>
#include <vector>

namespace muster::client {

// Owns    the plans of its gathers and, where parameters are used in another dtype, a copy of the shards.
// Thread  the session's.
// Bound   4096 pieces of all shards together.
// Fails   as the calls of the C API that it makes.
class UnitAllGather {
 public:
  // All outlive it.
  UnitAllGather(muster_session* session, const UnitFacts& facts)
      : facts_(facts), copies_(session), plans_(session) {}

  // Memory for the copy. shards: this rank's.
  Status allocate(muster_buffer shards);
  std::uint64_t bytes() const { return copies_.bytes(); }

  // whole, slice: the places that the set gives to the unit. slice_group: the ranks that keep it between
  // them.
  Status prepare(muster_range whole, muster_range slice, muster_group slice_group);
  Status withdraw() { return plans_.release(); }  // Errors: BUSY
  Status release();

  // The place of the unit while it is whole. An unsharded unit lies whole in its shards or their copy. A unit
  // that shares lies whole in memory of all its ranks; its gather moves nothing, but waits for them.
  muster_range whole() const { return whole_; }

  Result<muster_point> gather(SetLanes& lanes, shard::UnitOperations::GatherFrom from,
                              std::span<const muster_point> waits);
  Result<muster_point> slice(SetLanes& lanes, std::span<const muster_point> waits);

 private:
  Result<muster_plan> plan_gather(muster_group group, muster_range source, const UnitFacts::Pieces& pieces);
  Status plan_copies();
  Status plan_slices(muster_range slice, muster_group group);

  const UnitFacts& facts_;
  Resources copies_;
  Resources plans_;
  muster_buffer shards_ = 0;
  muster_buffer copy_ = 0;
  muster_range whole_{};
  muster_plan gather_ = 0, gather_slices_ = 0, slice_ = 0;
  std::vector<muster_plan> copy_plans_;
};

}  // namespace muster::client
