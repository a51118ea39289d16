// Units over all ranks of a job, one after the other.
#pragma once

#include "tests/bench/sharding/rank.hpp"

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <muster/units.h>

namespace muster::bench::sharding {

struct Shape {
  std::string name;
  std::int64_t rows = 0;
  std::int64_t columns = 0;  // 0: it is a vector
};

// Owns    the set of units.
// Thread  one.
// Bound   as muster_units.
// Fails   ends the program.
class UnitSet {
 public:
  UnitSet(Rank& rank, const char* name);

  // Sharded by rows over dp_shard, which is all ranks. In `options` no more is needed than what is unusual.
  muster_unit add(const std::string& name, const std::vector<Shape>& shapes,
                  muster_unit_options options = MUSTER_UNIT_OPTIONS_INIT);
  muster_tensor view(muster_unit unit, std::uint32_t parameter, std::int32_t which) const;
  muster_units_info info() const;

  void begin_step() { must(muster_step_begin(units_.get(), MUSTER_POINT_NONE, 0), "muster_step_begin"); }
  muster_point begin_forward(muster_unit unit);
  void end_forward(muster_unit unit, std::uint32_t part, muster_point after);
  std::array<muster_point, 2> begin_backward(muster_unit unit);
  void end_backward(muster_unit unit, std::uint32_t part, muster_point after);
  std::array<muster_point, 2> end_step(muster_point after);

 private:
  struct Destroy {
    void operator()(muster_units* units) const { muster_units_destroy(units); }
  };
  Rank& rank_;
  std::unique_ptr<muster_units, Destroy> units_;
};

}  // namespace muster::bench::sharding
