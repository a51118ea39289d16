// UnitStarts: carries out the schedule of a set, each decision by the objects of its unit.
#pragma once

#include "api/base/shard/schedule.hpp"
#include "api/client/set/lanes.hpp"
#include "api/client/units/unit.hpp"

#include <muster/muster.h>

#include <array>
#include <cstddef>
#include <memory>
#include <span>
#include <vector>

namespace muster::client {

// The lanes of a set of units.
inline constexpr std::array<muster_lane, 3> kUnitLanes{MUSTER_LANE_GATHER, MUSTER_LANE_REDUCE,
                                                       MUSTER_LANE_ALLREDUCE};

// Owns    nothing.
// Thread  the session's.
// Bound   -
// Fails   as the unit's gathering and reduction.
class UnitStarts final : public shard::UnitOperations {
 public:
  // Both outlive it.
  UnitStarts(const std::vector<std::unique_ptr<Unit>>& units, SetLanes& lanes)
      : units_(units), lanes_(lanes) {}

  Result<muster_point> gather(std::size_t unit, GatherFrom from,
                              std::span<const muster_point> waits) override {
    return units_[unit]->all_gather().gather(lanes_, from, waits);
  }
  Result<muster_point> slice(std::size_t unit, std::span<const muster_point> waits) override {
    return units_[unit]->all_gather().slice(lanes_, waits);
  }
  Result<Reduced> reduce(std::size_t unit, Reduction how, std::span<const muster_point> waits) override {
    return units_[unit]->reduction().reduce(lanes_, how, waits);
  }
  Result<muster_point> keep(std::size_t unit, std::span<const muster_point> waits) override {
    return units_[unit]->reduction().keep(lanes_, waits);
  }

 private:
  const std::vector<std::unique_ptr<Unit>>& units_;
  SetLanes& lanes_;
};

}  // namespace muster::client
