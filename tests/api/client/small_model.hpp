// A unit of three parameters that tensor parallelism cuts by columns, by rows, and not at all.
#pragma once

#include "tests/api/client/ok.hpp"
#include "tests/api/client/running_ranks.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <gtest/gtest.h>
#include <muster/tensor_parallel.h>
#include <muster/units.h>

namespace muster::test {

struct SmallSetting {
  std::uint32_t flags = 0;  // of all parameters
  std::uint32_t norm_flags = 0;
  std::uint32_t set_flags = 0;
  muster_dtype whole_dtype = 0;
  bool sharded = true;  // over dp_shard_cp; else all of dp replicates it
  std::int32_t after_forward = MUSTER_RESHARD_DEFAULT;
};

// A column weight [4, 3], a row weight [3, 4] and a norm [3] over dp_replicate, dp_shard and tp, by the rules
// of a Llama.
class SmallModel {
 public:
  static constexpr std::uint32_t kColumn = 0, kRow = 1, kNorm = 2;

  explicit SmallModel(Member& member, const SmallSetting& setting = {}) : member_(member) {
    muster_units_options set = MUSTER_UNITS_OPTIONS_INIT;
    set.flags = setting.set_flags;
    ok(muster_units_create(member.session, &set, &units));
    const std::array<const char*, 3> names{"layers.0.feed_forward.w1.weight",
                                           "layers.0.feed_forward.w2.weight", "layers.0.ffn_norm.weight"};
    const std::array<std::vector<std::int64_t>, 3> shapes{{{4, 3}, {3, 4}, {3}}};
    std::vector<muster_parameter> parameters;
    for (std::size_t i = 0; i < names.size(); ++i) {
      muster_layout* layout = nullptr;
      ok(muster_tp_layout(member.session, nullptr, 0, names[i], shapes[i].data(),
                          static_cast<std::int32_t>(shapes[i].size()),
                          setting.sharded ? "dp_shard_cp" : nullptr, "tp", &layout));
      layouts_.push_back(layout);
      parameters.push_back(
          {names[i], layout, MUSTER_F32, setting.flags | (i == kNorm ? setting.norm_flags : 0)});
    }
    muster_unit_options options = MUSTER_UNIT_OPTIONS_INIT;
    options.name = "layer";
    options.shard = setting.sharded ? "dp_shard_cp" : nullptr;
    options.replicate = setting.sharded ? "dp_replicate" : "dp_cp";
    options.tensor = "tp";
    options.whole_dtype = setting.whole_dtype;
    options.after_forward = setting.after_forward;
    options.parameters = parameters.data();
    options.parameter_count = static_cast<std::uint32_t>(parameters.size());
    muster_unit unit = 0;
    ok(muster_unit_create(units, &options, &unit));
  }
  SmallModel(const SmallModel&) = delete;
  SmallModel& operator=(const SmallModel&) = delete;
  ~SmallModel() {
    ok(muster_units_destroy(units));
    for (muster_layout* layout : layouts_) ok(muster_layout_destroy(layout));
  }

  muster_session* session() const { return member_.session; }
  // All of a view, which has no gaps.
  std::vector<float*> elements(std::uint32_t parameter, std::int32_t which) const {
    muster_tensor tensor{};
    ok(muster_unit_tensor(units, 0, parameter, which, &tensor));
    muster_buffer_info info = MUSTER_BUFFER_INFO_INIT;
    ok(muster_buffer_query(member_.session, tensor.buffer, &info));
    auto* first = reinterpret_cast<float*>(static_cast<std::byte*>(info.address) + tensor.offset_bytes);
    std::int64_t count = 1;
    for (std::int32_t dim = 0; dim < tensor.dims; ++dim) count *= tensor.size[dim];
    std::vector<float*> all;
    for (std::int64_t i = 0; i < count; ++i) all.push_back(first + i);
    return all;
  }
  void fill(std::uint32_t parameter, std::int32_t which, float value) const {
    for (float* element : elements(parameter, which)) *element = value;
  }
  void expect(std::uint32_t parameter, std::int32_t which, float value) const {
    for (const float* element : elements(parameter, which))
      EXPECT_EQ(*element, value) << "parameter " << parameter << " at rank " << member_.rank;
  }

  void begin(std::uint32_t flags = 0) const {
    ok(muster_step_begin(units, MUSTER_POINT_NONE, flags));
    muster_point ready = MUSTER_POINT_NONE;
    ok(muster_unit_forward_begin(units, 0, &ready));
    ok(muster_point_wait(member_.session, ready, -1));
  }
  // A step whose backward leaves `gradients` of the three parameters, the same in each element.
  void step(const std::array<float, 3>& gradients) const {
    begin();
    ok(muster_unit_forward_end(units, 0, 0, MUSTER_POINT_NONE));
    muster_point both[2];
    ok(muster_unit_backward_begin(units, 0, both));
    for (const muster_point point : both) ok(muster_point_wait(member_.session, point, -1));
    for (std::uint32_t p = 0; p < 3; ++p) fill(p, MUSTER_UNIT_WHOLE_GRADIENT, gradients[p]);
    ok(muster_unit_backward_end(units, 0, 0, MUSTER_POINT_NONE, 0, nullptr));
    end();
  }
  void end() const {
    muster_point done[2];
    ok(muster_step_end(units, MUSTER_POINT_NONE, done));
    for (const muster_point point : done) ok(muster_point_wait(member_.session, point, -1));
  }

  muster_units* units = nullptr;

 private:
  Member& member_;
  std::vector<muster_layout*> layouts_;
};

}  // namespace muster::test
