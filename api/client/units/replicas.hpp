// ReplicaBroadcast: makes the replicas of all shards equal.
#pragma once

#include "api/client/set/lanes.hpp"
#include "api/client/set/resources.hpp"
#include "api/client/units/unit.hpp"

#include <muster/muster.h>

#include <memory>
#include <span>
#include <vector>

namespace muster::client {

// Along each dim of the mesh that does not cut a parameter, the first rank gives its shard to the others. One
// dim comes after the other, so at the end all have the shard of the rank that is first in all these dims.
//
// Owns    the plans.
// Thread  the session's.
// Bound   a plan for each unit and each dim; in a unit that ranks have uneven parts of, for each run of
//         parameters that the dim does not cut.
// Fails   as the calls of the C API that it makes; kUnsupported as dims_that_cut().
class ReplicaBroadcast {
 public:
  explicit ReplicaBroadcast(muster_session* session) : plans_(session) {}

  // A collective. shared: the units lie over the mesh. Returns the point after which shards may be read.
  Result<muster_point> start(SetLanes& lanes, std::span<const std::unique_ptr<Unit>> units, bool shared,
                             muster_point after);
  Status withdraw();  // Errors: BUSY

 private:
  Status prepare(std::span<const std::unique_ptr<Unit>> units);
  Status plan(const Unit& unit, const char* dim);

  Resources plans_;
  std::vector<muster_plan> steps_;  // in their order
  bool is_prepared_ = false;
};

}  // namespace muster::client
