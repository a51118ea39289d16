#include "api/examples/training/units.hpp"

#include "api/examples/training/random.hpp"

#include <algorithm>
#include <utility>

namespace training {
namespace {

constexpr double kBeta1 = 0.9;
constexpr double kBeta2 = 0.95;
constexpr double kAdamEpsilon = 1e-8;
constexpr double kWeightDecay = 0.1;  // of matrices; vectors do not decay

std::int64_t elements_of(const muster_tensor& tensor) {
  std::int64_t elements = 1;
  for (std::int32_t dim = 0; dim < tensor.dims; ++dim) elements *= tensor.size[dim];
  return elements;
}

using LayoutHandle = std::unique_ptr<muster_layout, muster_status_t (*)(muster_layout*)>;

// The other dim cuts a parameter, and units cut the rows of what it leaves.
LayoutHandle layout_of(Runtime& runtime, const Parameter& parameter, const UnitsOptions& how,
                       const char* shard) {
  muster_layout_options options = MUSTER_LAYOUT_OPTIONS_INIT;
  options.dims = parameter.is_vector() ? 1 : 2;
  options.shape[0] = parameter.rows;
  options.shape[1] = parameter.is_vector() ? 0 : parameter.columns;
  const auto add = [&](const char* dim) -> muster_layout_axis& {
    muster_layout_axis& axis = options.axes[options.axis_count++];
    axis.name = dim;
    axis.placement = MUSTER_SHARD;
    return axis;
  };
  if (shard != nullptr) add(shard);
  if (how.cut != nullptr && parameter.cut != Cut::kNone) {
    muster_layout_axis& axis = add(how.cut);
    axis.dim = parameter.cut == Cut::kRows ? 0 : 1;
    axis.split = how.cut_split;
    if (parameter.head > 0) {
      axis.split = MUSTER_SPLIT_ALIGNED;
      axis.grain = parameter.head;
    }
  }
  muster_layout* layout = nullptr;
  check(muster_layout_create(runtime.session(), &options, &layout));
  return {layout, &muster_layout_destroy};
}

}  // namespace

Units::Units(Runtime& runtime, std::vector<std::vector<Parameter>> parameters, const UnitsOptions& options)
    : runtime_(runtime), parameters_(std::move(parameters)) {
  muster_units_options said = MUSTER_UNITS_OPTIONS_INIT;
  said.name = options.name;
  said.budget_bytes = options.budget;
  said.prefetch = options.prefetch;
  if (options.alone) said.flags |= MUSTER_UNITS_ALONE;
  if (options.share) said.flags |= MUSTER_UNITS_SHARE_ON_NODE;
  muster_units* units = nullptr;
  check(muster_units_create(runtime.session(), &said, &units));
  units_.reset(units);
  for (const std::vector<Parameter>& each : parameters_) add(each, options);
}

void Units::add(const std::vector<Parameter>& parameters, const UnitsOptions& options) {
  const bool is_cut = std::ranges::any_of(parameters, [](const Parameter& p) { return p.cut != Cut::kNone; });
  const char* shard = is_cut ? options.shard_of_cut : options.shard;
  std::vector<LayoutHandle> layouts;
  std::vector<muster_parameter> said;
  for (const Parameter& parameter : parameters) {
    layouts.push_back(layout_of(runtime_, parameter, options, shard));
    said.push_back({parameter.name.c_str(), layouts.back().get(), MUSTER_F32, 0});
  }
  muster_unit_options unit = MUSTER_UNIT_OPTIONS_INIT;
  const std::string name = parameters.front().name.substr(0, parameters.front().name.find('.'));
  unit.name = name.c_str();
  unit.shard = shard;
  unit.replicate = options.replicate;
  unit.divisor = options.divisor;
  unit.after_forward = options.reshard;
  if (options.whole_dtype != MUSTER_F32) unit.whole_dtype = options.whole_dtype;
  if (moments_.empty()) unit.flags = options.first_flags;
  unit.parameters = said.data();
  unit.parameter_count = static_cast<std::uint32_t>(said.size());
  muster_unit index = 0;
  check(muster_unit_create(units_.get(), &unit, &index));
  std::int64_t elements = 1;
  for (const muster_tensor& each : shards(index, 0, parameters.size(), MUSTER_UNIT_SHARD))
    elements += each.size[0];
  const auto bytes = static_cast<std::uint64_t>(elements) * sizeof(float);
  moments_.push_back({runtime_.allocate(bytes), runtime_.allocate(bytes)});
}

void Units::initialise(std::uint64_t seed) {
  for (std::size_t unit = 0; unit < count(); ++unit)
    for (std::size_t i = 0; i < parameters_[unit].size(); ++i) {
      const Parameter& parameter = parameters_[unit][i];
      const CounterRandom random(seed, parameter.name);
      each(unit, i, MUSTER_UNIT_SHARD, [&](float& element, std::int64_t row, std::int64_t column) {
        const auto position = static_cast<std::uint64_t>(row * parameter.columns + column);
        element = static_cast<float>(parameter.is_vector() ? parameter.start
                                                           : parameter.deviation * random.normal(position));
      });
    }
}

// ---- a step ------------------------------------------------------------------------------------

void Units::begin_step(muster_point after, bool unchanged) {
  check(muster_step_begin(units_.get(), after, unchanged ? MUSTER_STEP_UNCHANGED : 0));
}

muster_point Units::begin_forward(std::size_t unit) {
  muster_point ready = MUSTER_POINT_NONE;
  check(muster_unit_forward_begin(units_.get(), static_cast<muster_unit>(unit), &ready));
  return ready;
}

void Units::end_forward(std::size_t unit, muster_point after) {
  check(muster_unit_forward_end(units_.get(), static_cast<muster_unit>(unit), 0, after));
}

std::array<muster_point, 2> Units::begin_backward(std::size_t unit) {
  std::array<muster_point, 2> ready{};
  check(muster_unit_backward_begin(units_.get(), static_cast<muster_unit>(unit), ready.data()));
  return ready;
}

void Units::end_backward(std::size_t unit, muster_point after) {
  check(muster_unit_backward_end(units_.get(), static_cast<muster_unit>(unit), 0, after, 0, nullptr));
}

std::array<muster_point, 2> Units::end_step(muster_point after) {
  std::array<muster_point, 2> done{};
  check(muster_step_end(units_.get(), after, done.data()));
  return done;
}

// ---- views -------------------------------------------------------------------------------------

muster_tensor Units::view(std::size_t unit, std::size_t parameter, std::int32_t which) const {
  muster_tensor tensor{};
  check(muster_unit_tensor(units_.get(), static_cast<muster_unit>(unit),
                           static_cast<std::uint32_t>(parameter), which, &tensor));
  return tensor;
}

muster_tensor Units::stacked(std::size_t unit, std::size_t first, std::size_t count,
                             std::int32_t which) const {
  muster_tensor matrix = view(unit, first, which);
  for (std::size_t i = first + 1; i < first + count; ++i) matrix.size[0] += view(unit, i, which).size[0];
  return matrix;
}

muster_tensor Units::weight(std::size_t unit, std::size_t first, std::size_t count) const {
  return stacked(unit, first, count, MUSTER_UNIT_WHOLE);
}

muster_tensor Units::gradient(std::size_t unit, std::size_t first, std::size_t count) const {
  return stacked(unit, first, count, MUSTER_UNIT_WHOLE_GRADIENT);
}

std::vector<muster_box> Units::boxes(std::size_t unit, std::size_t parameter, std::int32_t which) const {
  std::vector<muster_box> boxes(1);  // one for each parameter, or none: no dim is fused
  std::size_t count = 0;
  check(muster_unit_boxes(units_.get(), static_cast<muster_unit>(unit), static_cast<std::uint32_t>(parameter),
                          which, boxes.data(), boxes.size(), &count));
  boxes.resize(count);
  return boxes;
}

std::int64_t Units::first_row(std::size_t unit, std::size_t parameter) const {
  const std::vector<muster_box> all = boxes(unit, parameter, MUSTER_UNIT_WHOLE);
  return all.empty() ? 0 : all.front().offset[0];
}

std::vector<muster_tensor> Units::shards(std::size_t unit, std::size_t first, std::size_t last,
                                         std::int32_t which) const {
  std::vector<muster_tensor> vectors;
  for (std::size_t i = first; i < last; ++i) {
    const muster_tensor next = view(unit, i, which);
    const std::int64_t elements = elements_of(next);
    if (elements == 0) continue;
    const bool touches =
        !vectors.empty() &&
        vectors.back().offset_bytes + static_cast<std::uint64_t>(vectors.back().size[0]) * sizeof(float) ==
            next.offset_bytes;
    if (touches)
      vectors.back().size[0] += elements;
    else
      vectors.push_back(muster_view1(next.buffer, next.offset_bytes, MUSTER_F32, elements));
  }
  return vectors;
}

std::size_t Units::matrices(std::size_t unit) const {
  return static_cast<std::size_t>(std::ranges::count(parameters_[unit], false, &Parameter::is_vector));
}

muster_units_info Units::info() const {
  muster_units_info info = MUSTER_UNITS_INFO_INIT;
  check(muster_units_query(units_.get(), &info));
  return info;
}

std::int64_t Units::peak_whole_bytes() const {
  if (const muster_units_info known = info(); known.place_bytes > 0)
    return static_cast<std::int64_t>(known.place_bytes);
  std::int64_t bytes = 0;
  for (std::size_t unit = 0; unit < count(); ++unit)
    for (std::size_t i = 0; i < parameters_[unit].size(); ++i) {
      const muster_tensor whole = weight(unit, i);
      bytes += elements_of(whole) * static_cast<std::int64_t>(muster_dtype_bytes(whole.dtype));
    }
  return bytes;
}

std::array<muster_tensor, 3> Units::saved(std::size_t unit, std::size_t parameter) const {
  const muster_tensor shard = view(unit, parameter, MUSTER_UNIT_SHARD);
  std::int64_t before = 0;  // elements of the unit's shard
  for (std::size_t i = 0; i < parameter; ++i) before += elements_of(view(unit, i, MUSTER_UNIT_SHARD));
  // Moments lie end to end, also where shards lie in a whole unit that ranks share.
  const auto moment = [&](const Buffer& buffer) {
    muster_tensor tensor = shard;
    tensor.buffer = buffer.handle;
    tensor.offset_bytes = static_cast<std::uint64_t>(before) * sizeof(float);
    std::int64_t stride = 1;
    for (std::int32_t dim = tensor.dims; dim-- > 0; stride *= tensor.size[dim]) tensor.stride[dim] = stride;
    return tensor;
  };
  return {shard, moment(moments_[unit].first), moment(moments_[unit].second)};
}

muster_layout* Units::layout(std::size_t unit, std::size_t parameter) const {
  muster_layout* layout = nullptr;
  check(muster_unit_layout(units_.get(), static_cast<muster_unit>(unit),
                           static_cast<std::uint32_t>(parameter), &layout));
  return layout;
}

// ---- the optimiser -----------------------------------------------------------------------------

muster_point Units::square_sum(const muster_tensor& sum) {
  muster_point done = MUSTER_POINT_NONE;
  check(muster_units_square_sum(units_.get(), &sum, &done));
  return done;
}

void Units::update(Program& program, const muster_tensor& state, double learning_rate) {
  for (std::size_t unit = 0; unit < count(); ++unit) {
    std::uint64_t done = 0;  // elements of the unit's shard
    const auto adamw = [&](std::size_t first, std::size_t last, double decay) {
      std::uint64_t gradient_at = 0;
      const std::vector<muster_tensor> gradients = shards(unit, first, last, MUSTER_UNIT_GRADIENT_SHARD);
      for (const muster_tensor& weights : shards(unit, first, last, MUSTER_UNIT_SHARD)) {
        const auto part = [&](muster_buffer buffer, std::uint64_t at) {
          return muster_view1(buffer, at * sizeof(float), MUSTER_F32, weights.size[0]);
        };
        muster_tensor gradient = gradients.front();  // gradients lie end to end
        gradient.offset_bytes += gradient_at * sizeof(float);
        gradient.size[0] = weights.size[0];
        program.kernel(muster_adamw(weights, gradient, part(moments_[unit].first.handle, done),
                                    part(moments_[unit].second.handle, done), state,
                                    {learning_rate, kBeta1, kBeta2, kAdamEpsilon, decay}));
        done += static_cast<std::uint64_t>(weights.size[0]);
        gradient_at += static_cast<std::uint64_t>(weights.size[0]);
      }
    };
    adamw(0, matrices(unit), kWeightDecay);
    adamw(matrices(unit), parameters_[unit].size(), 0.0);
  }
}

}  // namespace training
