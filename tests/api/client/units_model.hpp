// A model of units for tests, whose gradients anybody can compute.
#pragma once

#include "tests/api/client/one_unit.hpp"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <ranges>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <muster/kernels.h>
#include <muster/units.h>

namespace muster::test {

struct ParameterSpec {
  std::vector<std::int64_t> shape;
  std::int32_t tp_dim = -1;  // which dim tp cuts; -1: none
  std::int32_t shard_dim = 0;
  std::uint32_t flags = 0;
};

struct UnitSpec {
  std::string name;
  std::vector<ParameterSpec> parameters;
  std::int32_t after_forward = MUSTER_RESHARD_DEFAULT;
  std::uint32_t flags = 0;
};

// How a model is sharded and used.
struct Setting {
  std::string shard = "dp_shard_cp";
  std::string replicate = "dp_replicate";
  muster_dtype whole_dtype = 0;
  muster_dtype reduce_dtype = 0;
  double divisor = 0;
  std::uint64_t budget = 0;
  std::uint32_t prefetch = 1;
  std::uint32_t reduce_inputs = 1;
  std::uint32_t flags = 0;
  int microbatches = 1;
  std::uint32_t backward_flags = 0;  // of all microbatches but the last
};

// One rank's model: each forward copies parameters to where this rank sees them, and each backward writes a
// gradient that is `rank + 1` times the parameter.
class Model {
 public:
  Model(Member& member, const std::vector<UnitSpec>& specs, const Setting& setting)
      : member_(member), specs_(specs), setting_(setting) {
    muster_units_options options = MUSTER_UNITS_OPTIONS_INIT;
    options.budget_bytes = setting.budget;
    options.prefetch = setting.prefetch;
    options.reduce_inputs = setting.reduce_inputs;
    options.flags = setting.flags;
    ok(muster_units_create(member.session, &options, &units));
    for (const UnitSpec& spec : specs_) add(spec);
  }
  ~Model() { ok(muster_units_destroy(units)); }

  muster_tensor view(std::size_t unit, std::size_t parameter, std::int32_t which) const {
    muster_tensor tensor{};
    ok(muster_unit_tensor(units, static_cast<muster_unit>(unit), static_cast<std::uint32_t>(parameter), which,
                          &tensor));
    return tensor;
  }
  template<class T = float>
  T* memory(const muster_tensor& tensor) const {
    muster_buffer_info info = MUSTER_BUFFER_INFO_INIT;
    ok(muster_buffer_query(member_.session, tensor.buffer, &info));
    return reinterpret_cast<T*>(static_cast<std::byte*>(info.address) + tensor.offset_bytes);
  }
  // Calls body(place in the view, index in the tensor) for each element of a view.
  template<class Body>
  void each(std::size_t unit, std::size_t parameter, std::int32_t which, Body body) const {
    const muster_tensor tensor = view(unit, parameter, which);
    std::size_t count = 0;
    ok(muster_unit_boxes(units, static_cast<muster_unit>(unit), static_cast<std::uint32_t>(parameter), which,
                         nullptr, 0, &count));
    std::vector<muster_box> boxes(count);
    ok(muster_unit_boxes(units, static_cast<muster_unit>(unit), static_cast<std::uint32_t>(parameter), which,
                         boxes.data(), count, &count));
    const std::vector<std::int64_t>& shape = specs_[unit].parameters[parameter].shape;
    ASSERT_LE(shape.size(), 2U);
    const std::int64_t columns = shape.size() == 2 ? shape[1] : 1;
    for (const muster_box& box : boxes)
      for (std::int64_t i = 0; i < box.length[0]; ++i)
        for (std::int64_t j = 0; j < (shape.size() == 2 ? box.length[1] : 1); ++j) {
          const std::int64_t at =
              shape.size() == 2 ? (box.at[0] + i) * tensor.stride[0] + box.at[1] + j : box.at[0] + i;
          body(at, (box.offset[0] + i) * columns + (shape.size() == 2 ? box.offset[1] + j : 0));
        }
  }
  static float initial(std::size_t unit, std::size_t parameter, std::int64_t index) {
    return static_cast<float>(
        (index * 7 + static_cast<std::int64_t>(unit) * 3 + static_cast<std::int64_t>(parameter)) % 31 - 15);
  }
  void initialise() {
    for (std::size_t u = 0; u < specs_.size(); ++u)
      for (std::size_t p = 0; p < specs_[u].parameters.size(); ++p) {
        float* shard = memory(view(u, p, MUSTER_UNIT_SHARD));
        each(u, p, MUSTER_UNIT_SHARD,
             [&](std::int64_t at, std::int64_t index) { shard[at] = initial(u, p, index); });
      }
  }

  // Forward over all units, and backward in reverse. Returns the last point of the compute lane.
  void step(double rate) {
    ok(muster_step_begin(units, updated_, 0));
    if (copies_.empty()) make_copies();
    for (int microbatch = 0; microbatch < setting_.microbatches; ++microbatch) {
      const bool last = microbatch + 1 == setting_.microbatches;
      for (std::size_t u = 0; u < specs_.size(); ++u) forward(u);
      for (std::size_t u = specs_.size(); u-- > 0;)
        backward(u, last ? 0 : setting_.backward_flags, microbatch);
    }
    muster_point done[2];
    ok(muster_step_end(units, latest_, done));
    update(rate, done);
  }
  void forward(std::size_t u) {
    muster_point ready = MUSTER_POINT_NONE;
    ok(muster_unit_forward_begin(units, static_cast<muster_unit>(u), &ready));
    if (before_computing) before_computing({&ready, 1});
    for (std::size_t p = 0; p < specs_[u].parameters.size(); ++p) {
      const muster_tensor whole = view(u, p, MUSTER_UNIT_WHOLE);
      muster_tensor copy = whole;
      copy.buffer = copies_[u][p];
      copy.offset_bytes = 0;
      copy.dtype = MUSTER_F32;
      launch(muster_copy(whole, copy), {&ready, 1});
    }
    ok(muster_unit_forward_end(units, static_cast<muster_unit>(u), 0, latest_));
  }
  void backward(std::size_t u, std::uint32_t flags, int microbatch) {
    muster_point ready[2];
    ok(muster_unit_backward_begin(units, static_cast<muster_unit>(u), ready));
    if (before_computing) before_computing(ready);
    const bool kept = microbatch > 0 && (setting_.backward_flags & MUSTER_BACKWARD_KEEP_GRADIENTS) != 0;
    for (std::size_t p = 0; p < specs_[u].parameters.size(); ++p) {
      if ((specs_[u].parameters[p].flags & MUSTER_PARAMETER_FROZEN) != 0) continue;
      launch(muster_axpby(factor(), view(u, p, MUSTER_UNIT_WHOLE), kept ? 1 : 0,
                          view(u, p, MUSTER_UNIT_WHOLE_GRADIENT)),
             ready);
    }
    ok(muster_unit_backward_end(units, static_cast<muster_unit>(u), 0, latest_, flags, nullptr));
  }
  double factor() const { return member_.rank + 1; }
  void update(double rate, std::span<const muster_point> done) {
    for (std::size_t u = 0; u < specs_.size(); ++u)
      for (std::size_t p = 0; p < specs_[u].parameters.size(); ++p) {
        if ((specs_[u].parameters[p].flags & MUSTER_PARAMETER_FROZEN) != 0) continue;
        launch(muster_axpby(-rate, view(u, p, MUSTER_UNIT_GRADIENT_SHARD), 1, view(u, p, MUSTER_UNIT_SHARD)),
               done);
      }
    updated_ = latest_;
  }
  muster_point latest() const { return latest_; }  // of the compute lane
  // All elements that this rank has of all parameters, or of their gradients.
  std::vector<float> shards(std::int32_t which = MUSTER_UNIT_SHARD) const {
    std::vector<float> all;
    for (std::size_t u = 0; u < specs_.size(); ++u)
      for (std::size_t p = 0; p < specs_[u].parameters.size(); ++p) {
        if (which != MUSTER_UNIT_SHARD && (specs_[u].parameters[p].flags & MUSTER_PARAMETER_FROZEN) != 0)
          continue;
        const float* data = memory(view(u, p, which));
        each(u, p, MUSTER_UNIT_SHARD,
             [&](std::int64_t at, std::int64_t /*index*/) { all.push_back(data[at]); });
      }
    return all;
  }
  void wait() { ok(muster_point_wait(member_.session, latest_, -1)); }
  const float* copied(std::size_t u, std::size_t p) const { return addresses_.at({u, p}); }
  muster_units_info info() const {
    muster_units_info info = MUSTER_UNITS_INFO_INIT;
    ok(muster_units_query(units, &info));
    return info;
  }
  void launch(const muster_kernel& kernel, std::span<const muster_point> waits) {
    muster_submit submit = MUSTER_SUBMIT_INIT;
    for (const muster_point wait : waits)
      if (wait != MUSTER_POINT_NONE) submit.waits[submit.wait_count++] = wait;
    ok(muster_launch(member_.session, &kernel, &submit, &latest_));
  }

  muster_units* units = nullptr;
  // Called in each forward and backward, with what computing there waits for.
  std::function<void(std::span<const muster_point>)> before_computing;

 private:
  void add(const UnitSpec& spec) {
    std::vector<std::string> names;
    std::vector<muster_layout*> layouts;
    for (std::size_t p = 0; p < spec.parameters.size(); ++p) {
      const ParameterSpec& said = spec.parameters[p];
      names.push_back(spec.name + ".p" + std::to_string(p));
      muster_layout_options layout = MUSTER_LAYOUT_OPTIONS_INIT;
      layout.dims = static_cast<std::int32_t>(said.shape.size());
      std::ranges::copy(said.shape, layout.shape);
      layout.axes[0].name = setting_.shard.c_str();
      layout.axes[0].placement = MUSTER_SHARD;
      layout.axes[0].dim = said.shard_dim;
      layout.axis_count = 1;
      if (said.tp_dim >= 0) {
        layout.axes[1].name = "tp";
        layout.axes[1].placement = MUSTER_SHARD;
        layout.axes[1].dim = said.tp_dim;
        layout.axis_count = 2;
      }
      layouts.emplace_back();
      ok(muster_layout_create(member_.session, &layout, &layouts.back()));
    }
    std::vector<muster_parameter> parameters;
    for (std::size_t p = 0; p < spec.parameters.size(); ++p)
      parameters.push_back({names[p].c_str(), layouts[p], MUSTER_F32, spec.parameters[p].flags});
    muster_unit_options options = MUSTER_UNIT_OPTIONS_INIT;
    options.name = spec.name.c_str();
    options.shard = setting_.shard.c_str();
    options.replicate = setting_.replicate.c_str();
    options.whole_dtype = setting_.whole_dtype;
    options.reduce_dtype = setting_.reduce_dtype;
    options.divisor = setting_.divisor;
    options.after_forward = spec.after_forward;
    options.flags = spec.flags;
    options.parameters = parameters.data();
    options.parameter_count = static_cast<std::uint32_t>(parameters.size());
    muster_unit unit = 0;
    ok(muster_unit_create(units, &options, &unit));
    for (muster_layout* layout : layouts) ok(muster_layout_destroy(layout));
  }
  void make_copies() {
    copies_.resize(specs_.size());
    for (std::size_t u = 0; u < specs_.size(); ++u)
      for (std::size_t p = 0; p < specs_[u].parameters.size(); ++p) {
        const muster_tensor whole = view(u, p, MUSTER_UNIT_WHOLE);
        std::int64_t elements = 1;
        for (int dim = 0; dim < whole.dims; ++dim) elements *= whole.size[dim];
        copies_[u].emplace_back();
        void* address = nullptr;
        ok(muster_buffer_alloc(member_.session, static_cast<std::uint64_t>(elements) * sizeof(float) + 4,
                               &copies_[u].back(), &address));
        addresses_[{u, p}] = static_cast<const float*>(address);
      }
  }

  Member& member_;
  std::vector<UnitSpec> specs_;
  Setting setting_;
  std::vector<std::vector<muster_buffer>> copies_;
  std::map<std::pair<std::size_t, std::size_t>, const float*> addresses_;
  muster_point latest_ = MUSTER_POINT_NONE;
  muster_point updated_ = MUSTER_POINT_NONE;
};

inline std::vector<UnitSpec> five_units(std::int32_t after_forward = MUSTER_RESHARD_DEFAULT,
                                        bool tp = false) {
  std::vector<UnitSpec> specs;
  specs.push_back({"root", {{{13, 4}, tp ? 0 : -1}, {{5}}}, after_forward, MUSTER_UNIT_ROOT});
  for (int i = 0; i < 3; ++i)
    specs.push_back(
        {"block." + std::to_string(i),
         {{{9, 6}, tp ? 0 : -1}, {{8 + i, 6}, tp ? 1 : -1}, {{1}}, {{7}, -1, 0, MUSTER_PARAMETER_FROZEN}},
         after_forward,
         0});
  specs.push_back({"head", {{{11, 3}, tp ? 0 : -1}}, after_forward, 0});
  return specs;
}

}  // namespace muster::test
