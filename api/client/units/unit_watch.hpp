// UnitWatch: checks a set of units in check mode. It stands between the schedule and the operations that
// carry the schedule out.
#pragma once

#include "api/base/result.hpp"
#include "api/base/shard/schedule.hpp"
#include "api/client/units/unit.hpp"

#include <muster/muster.h>

#include <cstddef>
#include <memory>
#include <span>
#include <string>

namespace muster::client {

// Owns    the objects of its checks.
// Thread  the session's.
// Bound   that of the set.
// Fails   as the operations that it passes on; kState for a finding, and kCorrupt at all ranks if replicas
//         differ. A finding breaks the step.
class UnitWatch : public shard::UnitOperations {
 public:
  // A set whose units have their places. All outlive the watch.
  struct Set {
    muster_session* session;
    const std::string& name;
    std::span<const std::unique_ptr<Unit>> units;
    bool shared;  // they lie over the mesh
    shard::UnitOperations& operations;
  };

  // A step is about to begin, and its shards may be read after the point.
  virtual Status begin_step(muster_point after, bool unchanged) = 0;
  // Shards may also be read after that point alone.
  virtual void shards_change(muster_point after) = 0;
  // A backward has begun. Gives it another point to wait for.
  virtual Status begin_backward(std::size_t unit, std::span<muster_point, 2> ready) = 0;
  // The schedule has ended the step.
  virtual Status end_step() = 0;
  // Takes out the finding that the watch made during the call of a step that is about to return.
  virtual Status take_finding() = 0;
  // Forgets a step that has failed.
  virtual void reset() = 0;
  virtual Status release() = 0;  // Errors: BUSY
};

// Null: the session is not in check mode.
Result<std::unique_ptr<UnitWatch>> watch_units(const UnitWatch::Set& set);

}  // namespace muster::client
