// One unit of a set, used by a real node's rank.
#pragma once

#include "tests/api/client/ok.hpp"
#include "tests/api/client/running_ranks.hpp"

#include <cstddef>
#include <cstdint>
#include <vector>

#include <muster/kernels.h>
#include <muster/units.h>

namespace muster::test {

// All of a view of a parameter that has no gaps.
inline std::vector<float*> view_of(const Member& member, muster_units* units, muster_unit unit,
                                   std::uint32_t parameter, std::int32_t which) {
  muster_tensor tensor{};
  ok(muster_unit_tensor(units, unit, parameter, which, &tensor));
  muster_buffer_info info = MUSTER_BUFFER_INFO_INIT;
  ok(muster_buffer_query(member.session, tensor.buffer, &info));
  auto* first = reinterpret_cast<float*>(static_cast<std::byte*>(info.address) + tensor.offset_bytes);
  std::vector<float*> all;
  for (std::int64_t i = 0; i < tensor.size[0]; ++i) all.push_back(first + i);
  return all;
}

// One unit of two vectors, without a model around it.
class OneUnit {
 public:
  // "unit", over "dp_shard", unless options say otherwise. `created` has what came of it.
  OneUnit(Member& member, muster_unit_options options, muster_units_options set = MUSTER_UNITS_OPTIONS_INIT,
          std::int64_t elements = 10, muster_cut_order order = MUSTER_CUT_INNERMOST_FIRST)
      : member_(member) {
    ok(muster_units_create(member.session, &set, &units));
    if (options.name == nullptr) options.name = "unit";
    if (options.shard == nullptr) options.shard = "dp_shard";
    muster_layout_options layout = MUSTER_LAYOUT_OPTIONS_INIT;
    layout.dims = 1;
    layout.shape[0] = elements;
    layout.axis_count = 1;
    layout.order = order;
    layout.axes[0].name = options.shard;
    layout.axes[0].placement = MUSTER_SHARD;
    ok(muster_layout_create(member.session, &layout, &layout_));
    const muster_parameter parameters[] = {{"w", layout_, MUSTER_F32, 0}, {"v", layout_, MUSTER_F32, 0}};
    options.parameters = parameters;
    options.parameter_count = 2;
    muster_unit unit = 0;
    created = muster_unit_create(units, &options, &unit);
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

  // Forward, and a backward whose gradients are `value` in each element.
  void pass(double value) {
    ok(forward());
    ok(forward_end());
    muster_submit submit = MUSTER_SUBMIT_INIT;
    muster_point ready[2];
    ok(muster_unit_backward_begin(units, 0, ready));
    for (const muster_point point : ready)
      if (point != MUSTER_POINT_NONE) submit.waits[submit.wait_count++] = point;
    muster_point written = MUSTER_POINT_NONE;
    for (std::uint32_t p = 0; p < 2; ++p) {
      muster_tensor gradient{};
      ok(muster_unit_tensor(units, 0, p, MUSTER_UNIT_WHOLE_GRADIENT, &gradient));
      const muster_kernel fill = muster_fill(gradient, value);
      ok(muster_launch(member_.session, &fill, &submit, &written));
    }
    ok(muster_unit_backward_end(units, 0, 0, written, 0, nullptr));
  }
  // A step of one pass. Returns the gradient that this rank then has, which is equal in all elements.
  float reduced(double value) {
    ok(step());
    pass(value);
    return last_gradient();
  }
  // Ends the step. 0: this rank has no element.
  float last_gradient() {
    ok(step_end());
    for (const muster_point point : done) ok(muster_point_wait(member_.session, point, -1));
    const std::vector<float*> shard = elements(MUSTER_UNIT_GRADIENT_SHARD);
    for (const float* element : shard) EXPECT_EQ(*element, *shard.front());
    return shard.empty() ? 0 : *shard.front();
  }
  // A backward whose gradients the caller writes now.
  void await_backward() {
    muster_point ready[2];
    ok(muster_unit_backward_begin(units, 0, ready));
    for (const muster_point point : ready) ok(muster_point_wait(member_.session, point, -1));
  }
  // All of a view of a parameter, which has no gaps.
  std::vector<float*> elements(std::int32_t which, std::uint32_t parameter = 0) const {
    return view_of(member_, units, 0, parameter, which);
  }

  muster_units* units = nullptr;
  muster_status_t created = MUSTER_OK;
  muster_point done[2] = {};

 private:
  Member& member_;
  muster_layout* layout_ = nullptr;
};

}  // namespace muster::test
