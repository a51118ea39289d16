// GradientNorm: the sum of squares of a model's gradients, each element counted once.
#pragma once

#include "api/client/units/lanes.hpp"
#include "api/client/units/resources.hpp"
#include "api/client/units/unit.hpp"

#include <muster/muster.h>

#include <memory>
#include <span>
#include <vector>

namespace muster::client {

// A gradient shard counts on the first of the ranks of "weight" that have it. "weight" is all that shares the
// parameters: dp_shard, cp and tp. Then "pp" adds its stages. Replicas have the same gradients.
//
// Owns    the plans for one place of the result.
// Thread  the session's.
// Bound   a kernel for each run of parameters that count.
// Fails   as the calls of the C API that it makes; kUnsupported for a unit over other dims.
class GradientNorm {
 public:
  explicit GradientNorm(muster_session* session) : plans_(session) {}

  // A collective. shared: the units lie over the mesh. Returns the point at which the sum is in `out`.
  Result<muster_point> start(UnitLanes& lanes, std::span<const std::unique_ptr<Unit>> units,
                             const muster_tensor& out, bool shared, std::span<const muster_point> waits);
  Status withdraw();  // Errors: BUSY

 private:
  Status prepare(std::span<const std::unique_ptr<Unit>> units, const muster_tensor& out, bool shared);
  Result<bool> counts(const UnitParameter& parameter) const;
  Status reduce_over(const char* dim, const muster_tensor& out);
  muster_session* session() const { return plans_.session(); }

  Resources plans_;
  std::vector<muster_plan> steps_;  // in their order
  muster_tensor out_{};
};

}  // namespace muster::client
