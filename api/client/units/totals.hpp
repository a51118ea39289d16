// GradientTotal: a figure of all of a model's gradients, each element counted once.
#pragma once

#include "api/client/set/lanes.hpp"
#include "api/client/set/resources.hpp"
#include "api/client/units/unit.hpp"

#include <muster/muster.h>

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

namespace muster::client {

// A gradient shard counts on the first of the ranks that have it, among those over whose dims is summed.
// These are "weight" (dp_shard, cp and tp), other dims that cut a parameter of the stage, and last "pp".
// Along all else the ranks have the same figures. Replicas have the same gradients. A sum of squares adds
// nothing of them, but is not finite if they are not.
//
// Owns    the plans for one place of the result.
// Thread  the session's.
// Bound   a kernel for each run of parameters.
// Fails   as the calls of the C API that it makes; kUnsupported as dims_that_cut().
class GradientTotal {
 public:
  enum class Figure : std::uint8_t {
    kSquareSum,  // of one number
    kZeroCount,  // of two: zeros, and elements
  };

  // Over which figures are summed, in this order: domain and dp_replicate only where they cut a parameter.
  static constexpr const char* kDims[] = {"weight", "domain", "dp_replicate", "pp"};

  GradientTotal(muster_session* session, Figure figure) : figure_(figure), plans_(session) {}

  std::int64_t numbers() const { return figure_ == Figure::kSquareSum ? 1 : 2; }

  // A collective. out: numbers() elements of F64 end to end. shared: the units lie over the mesh. Returns the
  // point at which the figure is in `out`.
  Result<muster_point> start(SetLanes& lanes, std::span<const std::unique_ptr<Unit>> units,
                             const muster_tensor& out, bool shared, std::span<const muster_point> waits);
  Status withdraw();  // Errors: BUSY

 private:
  Status prepare(std::span<const std::unique_ptr<Unit>> units, const muster_tensor& out, bool shared);
  struct Run {
    muster_tensor gradients;  // end to end
    bool counts;
  };
  Status find_summed(std::span<const std::unique_ptr<Unit>> units);
  Result<std::vector<Run>> runs(const Unit& unit, bool shared) const;
  Result<bool> counts(const UnitFacts::Parameter& parameter) const;
  Status add(const muster_kernel& kernel);
  Status reduce_over(const char* dim);
  muster_session* session() const { return plans_.session(); }

  Figure figure_;
  Resources plans_;
  std::vector<muster_plan> steps_;        // in their order
  std::vector<std::string_view> summed_;  // basic dims of the stage over which figures are summed
  muster_range out_{};
};

}  // namespace muster::client
