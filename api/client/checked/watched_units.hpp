// WatchedUnits: marks memory that a set of units must not use, and looks for the marks.
#pragma once

#include "api/client/check/check_mode.hpp"
#include "api/client/checked/compared_replicas.hpp"
#include "api/client/set/lanes.hpp"
#include "api/client/set/resources.hpp"
#include "api/client/units/unit_watch.hpp"

#include <muster/units.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

namespace muster::client {

// While a unit is not whole its place is closed, and each byte there is 0xFF: a NaN of every float. A
// backward begins with the same bytes in its whole gradients. They are copied before they are reduced, and
// the copy is checked when the step ends. A gradient that still has only these bytes was never written.
//
// Owns    lanes of its own, plans, and room for a copy of the whole gradients of each unit.
// Thread  the session's.
// Bound   that of the set. The end of a step waits for its backwards, and its begin for the point `after`.
// Fails   as UnitWatch.
class WatchedUnits final : public UnitWatch {
 public:
  static Result<std::unique_ptr<UnitWatch>> make(CheckMode& check, const UnitWatch::Set& set);

  Status begin_step(muster_point after, bool unchanged) override;
  void shards_change(muster_point after) override;
  Status begin_backward(std::size_t unit, std::span<muster_point, 2> ready) override;
  Status end_step() override;
  Status take_finding() override { return std::exchange(finding_, {}); }
  void reset() override;
  Status release() override;

  Result<muster_point> gather(std::size_t unit, GatherFrom from,
                              std::span<const muster_point> waits) override;
  Result<muster_point> slice(std::size_t unit, std::span<const muster_point> waits) override;
  Result<Reduced> reduce(std::size_t unit, Reduction how, std::span<const muster_point> waits) override;
  Result<muster_point> keep(std::size_t unit, std::span<const muster_point> waits) override;
  void given_up(std::size_t unit, const shard::UnitSchedule& schedule) override;

 private:
  struct Watched {
    const std::byte* place = nullptr;  // null: its shards lie there too, or this process does not see it
    std::uint64_t place_bytes = 0;
    muster_plan spoil_place = 0;
    muster_point spoilt = MUSTER_POINT_NONE;  // the latest time
    muster_plan spoil_gradients = 0;          // 0: nothing of it trains
    muster_point gradients_spoilt = MUSTER_POINT_NONE;
    bool in_backward = false;
    muster_plan copy_gradients = 0;
    const std::byte* copy = nullptr;
    muster_point copied = MUSTER_POINT_NONE;  // NONE: there is nothing to look at
    std::vector<std::size_t> looked_at;       // parameters that the backward must have written
  };

  WatchedUnits(CheckMode& check, const UnitWatch::Set& set);
  Status prepare(std::size_t unit);
  Result<muster_plan> spoil(muster_range start, std::uint64_t bytes);
  const std::byte* address_of(muster_range range) const;
  void close(std::size_t unit);
  Status copy(std::size_t unit, std::span<const muster_point> waits, shard::PointSet& before);
  Status look_at_copy(std::size_t unit);

  CheckMode& check_;
  UnitWatch::Set set_;
  std::vector<Watched> watched_;  // by unit
  SetLanes lanes_;
  Resources memory_;
  ComparedReplicas replicas_;
  shard::PointSet changed_;  // after them shards may be read
  Status finding_;
};

}  // namespace muster::client
