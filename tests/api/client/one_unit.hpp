// A set of one unit of two vectors over dp_shard, without a model around it.
#pragma once

#include "tests/api/client/running_ranks.hpp"
#include "tests/api/client/small_model.hpp"

#include <cstdint>

#include <muster/units.h>

namespace muster::test {

class OneUnit {
 public:
  OneUnit(Member& member, muster_unit_options options, muster_units_options set = MUSTER_UNITS_OPTIONS_INIT,
          std::int64_t elements = 10, muster_cut_order order = MUSTER_CUT_INNERMOST_FIRST) {
    ok(muster_units_create(member.session, &set, &units));
    muster_layout_options layout = MUSTER_LAYOUT_OPTIONS_INIT;
    layout.dims = 1;
    layout.shape[0] = elements;
    layout.axis_count = 1;
    layout.order = order;
    layout.axes[0].name = "dp_shard";
    layout.axes[0].placement = MUSTER_SHARD;
    ok(muster_layout_create(member.session, &layout, &layout_));
    const muster_parameter parameters[] = {{"w", layout_, MUSTER_F32, 0}, {"v", layout_, MUSTER_F32, 0}};
    options.name = "unit";
    options.shard = "dp_shard";
    options.parameters = parameters;
    options.parameter_count = 2;
    muster_unit unit = 0;
    ok(muster_unit_create(units, &options, &unit));
  }
  OneUnit(const OneUnit&) = delete;
  OneUnit& operator=(const OneUnit&) = delete;
  ~OneUnit() {
    ok(muster_units_destroy(units));
    ok(muster_layout_destroy(layout_));
  }
  muster_status_t forward() {
    muster_point ready = MUSTER_POINT_NONE;
    return muster_unit_forward_begin(units, 0, &ready);
  }
  muster_status_t forward_end(std::uint32_t part = 0) {
    return muster_unit_forward_end(units, 0, part, MUSTER_POINT_NONE);
  }
  muster_status_t backward() {
    muster_point ready[2];
    return muster_unit_backward_begin(units, 0, ready);
  }
  muster_status_t backward_end(std::uint32_t flags = 0, std::uint32_t part = 0) {
    return muster_unit_backward_end(units, 0, part, MUSTER_POINT_NONE, flags, nullptr);
  }
  muster_status_t step() { return muster_step_begin(units, MUSTER_POINT_NONE, 0); }
  muster_status_t step_end() { return muster_step_end(units, MUSTER_POINT_NONE, done); }
  muster_units_info info() const {
    muster_units_info info = MUSTER_UNITS_INFO_INIT;
    ok(muster_units_query(units, &info));
    return info;
  }

  muster_units* units = nullptr;
  muster_point done[2] = {};

 private:
  muster_layout* layout_ = nullptr;
};

}  // namespace muster::test
