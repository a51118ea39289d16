#include "api/examples/winds/model.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <utility>

namespace winds {

using namespace training;

namespace {

constexpr double kNormEpsilon = 1e-5;
constexpr std::int64_t kTaps = 9;

// Positions in the unit of a layer.
enum LayerParameter : std::size_t { kWeight, kScale, kShift };
constexpr std::size_t kBias = 1;  // of a layer without a norm

std::int64_t groups_of(std::int64_t channels) {
  return std::gcd(std::int64_t{8}, channels / 4);
}

std::uint64_t bytes_of(const std::vector<std::int64_t>& shape, muster_dtype dtype) {
  std::uint64_t bytes = muster_dtype_bytes(dtype);
  for (const std::int64_t size : shape) bytes *= static_cast<std::uint64_t>(size);
  return bytes;
}

muster_tensor view_of(const Buffer& buffer, muster_dtype dtype, const std::vector<std::int64_t>& shape) {
  return muster_view(buffer.handle, 0, dtype, static_cast<std::int32_t>(shape.size()), shape.data());
}

std::vector<std::int64_t> list_of(const std::int64_t (&lengths)[MUSTER_TENSOR_DIMS_MAX]) {
  return {lengths, lengths + kDims};
}

}  // namespace

std::vector<LayerSpec> layers_of(std::int64_t width) {
  using enum LayerSpec::Input;
  const std::int64_t fine = width, middle = 2 * width, deep = 4 * width;
  return {{"enter", 1, kInputs + kPlaces, fine, kField, {}, false},
          {"down", 2, fine, middle},
          {"deeper", 2, middle, deep},
          {"deep", 1, deep, deep},
          {"shallow", 1, deep, middle},
          {"middle", 1, middle, middle, kRaised, 2},
          {"narrow", 1, middle, fine},
          {"fine", 1, fine, fine, kRaised, 1, false},
          {"leave", 1, fine, kWinds, kPrevious, {}, false}};
}

std::vector<std::vector<Parameter>> units_of(const Grid& grid, std::int64_t width, bool cut_position) {
  const Cut cut = cut_position ? Cut::kRows : Cut::kNone;
  std::vector<std::vector<Parameter>> units{{{"position", grid.rows, kPlaces, cut, 0.1}}};
  for (const LayerSpec& layer : layers_of(width)) {
    const std::int64_t inputs = kTaps * layer.in;
    std::vector<Parameter>& unit = units.emplace_back();
    const double deviation = std::sqrt((layer.out == kWinds ? 1.0 : 2.0) / static_cast<double>(inputs));
    unit.push_back({layer.name + ".weight", layer.out, inputs, Cut::kNone, deviation});
    const Parameter zeros{layer.name + ".bias", layer.out, 1, Cut::kNone, 0.0, 0, 0.0};
    if (layer.has_norm) unit.push_back({layer.name + ".norm", layer.out, 1, Cut::kNone, 0.0});
    unit.push_back(zeros);
  }
  return units;
}

Model::Model(Runtime& runtime, const Sharing& sharing, const Options& options, const Grid& grid, Units& units,
             std::int64_t samples)
    : runtime_(runtime),
      sharing_(sharing),
      grid_(grid),
      units_(units),
      samples_(samples),
      recompute_(options.recompute),
      loss_(runtime) {
  const std::uint64_t before = runtime_.counter("buffer_bytes");
  muster_halos_options said = MUSTER_HALOS_OPTIONS_INIT;
  said.group = sharing.domain.group;
  said.name = sharing.name;
  muster_halos* halos = nullptr;
  check(muster_halos_create(runtime.session(), &said, &halos));
  halos_.reset(halos);
  for (const LayerSpec& spec : layers_of(options.width)) shape(layers_.size(), spec);
  const muster_halo_box& own = layers_.front().part->info().own;
  patch_ = {own.offset[1], own.offset[2], own.length[1], own.length[2]};
  for (Layer& layer : layers_) allocate(layer);
  inputs_ = tensor(MUSTER_F32, {samples_, patch_.rows, patch_.columns, kInputs});
  truth_ = tensor(MUSTER_F32, {samples_, patch_.rows, patch_.columns, kWinds});
  weights_ = tensor(MUSTER_F32, {1, patch_.rows, 1, 1});
  mean_loss_ = tensor(MUSTER_F32, {1});
  auto* weights = static_cast<float*>(runtime_.address(weights_));
  for (std::int64_t row = 0; row < patch_.rows; ++row)
    weights[row] = static_cast<float>(grid_.weight(patch_.row + row));
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    make_halo(layers_[i]);
    if (layers_[i].raising) make_raising_halo(layers_[i], layers_[i - 1]);
  }
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    record_input(i);
    record_layer(layers_[i].forward, layers_[i]);
    if (recompute_) record_layer(layers_[i].backward, layers_[i]);
    record_norm_backward(i);
    record_input_backward(i);
  }
  record_loss();
  bytes_ = runtime_.counter("buffer_bytes") - before;
}

muster_halos_info Model::halos() const {
  muster_halos_info info = MUSTER_HALOS_INFO_INIT;
  check(muster_halos_query(halos_.get(), &info));
  return info;
}

// ---- shapes and memory ---------------------------------------------------------------------------

// Which part of its field the layer has, from the part that the layer before it leaves.
void Model::shape(std::size_t index, const LayerSpec& spec) {
  Layer& layer = layers_.emplace_back(runtime_);
  layer.spec = spec;
  layer.windows = convolution_windows(spec.stride, spec.out);
  const auto rank = static_cast<std::int32_t>(sharing_.domain.coordinate);
  FieldLayout items;
  if (index == 0) {
    layer.items = {samples_, grid_.rows, grid_.columns, spec.in};
    items = layout_of(layer.items, sharing_.cut);
  } else {
    const Layer& before = layers_[index - 1];
    layer.items = before.results;
    items = before.part->result();
  }
  if (spec.input == LayerSpec::Input::kRaised) {
    const Layer& like = layers_[*spec.skip];
    const std::vector<std::int64_t> rows = like.part->lengths(sharing_.cut, 1);
    const std::vector<std::int64_t> columns = like.part->lengths(sharing_.cut, 2);
    layer.raising.emplace(items.get(), raising_windows(rows, columns), rank);
    layer.items = like.items;
    items = layer.raising->result();
  }
  layer.part.emplace(items.get(), layer.windows, rank);
  layer.results = {samples_, (layer.items[1] - 1) / spec.stride + 1, (layer.items[2] - 1) / spec.stride + 1,
                   spec.out};
}

muster_tensor Model::tensor(muster_dtype dtype, const std::vector<std::int64_t>& shape) {
  const std::uint64_t bytes = std::max<std::uint64_t>(1, bytes_of(shape, dtype));  // a rank may have nothing
  return view_of(runtime_.allocate(bytes), dtype, shape);
}

// Memory that layers use one after the other.
muster_tensor Model::tensor_in(Buffer& shared, const std::vector<std::int64_t>& shape) {
  if (shared.handle == 0) {
    std::uint64_t bytes = 1;
    for (const Layer& each : layers_)
      bytes = std::max(bytes, bytes_of(list_of(each.part->info().results.length), MUSTER_F32));
    shared = runtime_.allocate(bytes);
  }
  return view_of(shared, MUSTER_F32, shape);
}

void Model::allocate(Layer& layer) {
  const std::vector<std::int64_t> held = list_of(layer.part->info().held.length);
  const std::vector<std::int64_t> results = list_of(layer.part->info().results.length);
  layer.held = tensor(MUSTER_F32, held);
  layer.held_gradient = tensor(MUSTER_F32, held);
  if (layer.raising) {
    layer.raised = tensor(MUSTER_F32, list_of(layer.raising->info().held.length));
    layer.raised_gradient = tensor(MUSTER_F32, list_of(layer.raising->info().held.length));
  }
  const bool keeps = !recompute_ || &layer == &layers_.back();
  layer.sums_up = keeps ? tensor(MUSTER_F32, results) : tensor_in(kept_sums_, results);
  layer.normed = layer.sums_up;
  if (!layer.spec.has_norm) return;
  layer.normed = keeps ? tensor(MUSTER_F32, results) : tensor_in(kept_normed_, results);
  const std::int64_t groups = groups_of(layer.spec.out);
  layer.statistics = tensor(MUSTER_F64, {samples_, groups, 3});
  layer.all_statistics = tensor(MUSTER_F64, {sharing_.domain.size, samples_, groups, 3});
  layer.merged = tensor(MUSTER_F64, {samples_, groups, 3});
  layer.sums = tensor(MUSTER_F64, {samples_, groups, 2});
}

std::size_t Model::unit_of(const Layer& layer) const {
  return static_cast<std::size_t>(
             std::ranges::find_if(layers_, [&](const Layer& each) { return &each == &layer; }) -
             layers_.begin()) +
         1;
}

muster_tensor kernel_view(const muster_tensor& matrix, const LayerSpec& spec) {
  return muster_view4(matrix.buffer, matrix.offset_bytes, matrix.dtype, spec.out, 3, 3, spec.in);
}
muster_tensor Model::weight(const Layer& layer) const {
  return kernel_view(units_.weight(unit_of(layer), kWeight), layer.spec);
}
muster_tensor Model::weight_gradient(const Layer& layer) const {
  return kernel_view(units_.gradient(unit_of(layer), kWeight), layer.spec);
}

// The whole position is this rank's rows alone where units cut it over `domain`.
muster_tensor Model::position(const muster_tensor& whole) const {
  const std::int64_t first = patch_.rows == 0 ? 0 : patch_.row - units_.first_row(0, 0);
  return muster_view4(whole.buffer,
                      whole.offset_bytes + static_cast<std::uint64_t>(first * kPlaces) * sizeof(float),
                      whole.dtype, 1, patch_.rows, 1, kPlaces);
}

// ---- halos -----------------------------------------------------------------------------------------

namespace {

// Plans of one kernel over each box.
template<class Make>
std::vector<muster_plan> plans_of(Runtime& runtime, const std::vector<muster_halo_box>& boxes, Make make) {
  std::vector<muster_plan> plans;
  for (const muster_halo_box& box : boxes)
    if (box.length[1] > 0 && box.length[2] > 0) plans.push_back(runtime.plan(make(box)));
  return plans;
}

muster_halo_kernels kernels_of(const std::vector<muster_plan>& interior,
                               const std::vector<muster_plan>& boundary) {
  return {interior.data(), boundary.data(), static_cast<std::uint32_t>(interior.size()),
          static_cast<std::uint32_t>(boundary.size())};
}

}  // namespace

muster_halo Model::add_halo(const std::string& name, const Part& part, const muster_tensor& held,
                            const muster_tensor& held_gradient, const muster_halo_kernels& forward,
                            const muster_halo_kernels& backward) {
  muster_halo_options options = MUSTER_HALO_OPTIONS_INIT;
  options.name = name.c_str();
  options.stencil = part.stencil();
  options.gradients = MUSTER_HALO_RETURN;
  options.held = held;
  options.held_gradients = held_gradient;
  options.forward = forward;
  options.backward = backward;
  muster_halo halo = 0;
  check(muster_halo_create(halos_.get(), &options, &halo));
  return halo;
}

void Model::make_halo(Layer& layer) {
  const Part& part = *layer.part;
  const muster_tensor bias = layer.spec.has_norm ? muster_tensor{} : units_.weight(unit_of(layer), kBias);
  const auto forward = [&](const muster_halo_box& box) {
    const muster_convolution c = convolution_of(part, layer.windows, box);
    return muster_convolution_forward(&c, layer.held, weight(layer), bias, layer.sums_up);
  };
  const muster_tensor dy = tensor_in(gradient_, list_of(part.info().results.length));
  const auto by_items = [&](const muster_halo_box& box) {
    const muster_convolution c = convolution_of(part, layer.windows, box);
    return muster_convolution_dgrad(&c, dy, weight(layer), layer.held_gradient, 0);
  };
  const auto inside = plans_of(runtime_, {part.info().interior}, forward);
  const auto border = plans_of(runtime_, part.boundary(), forward);
  auto back_inside = plans_of(runtime_, {part.info().own}, by_items);
  const auto back_border = plans_of(runtime_, part.rim(), by_items);
  const muster_tensor dbias = layer.spec.has_norm ? muster_tensor{} : units_.gradient(unit_of(layer), kBias);
  const muster_convolution all = convolution_of(part, layer.windows, part.info().results);
  back_inside.push_back(
      runtime_.plan(muster_convolution_wgrad(&all, dy, layer.held, weight_gradient(layer), dbias, 0)));
  layer.halo = add_halo(layer.spec.name, part, layer.held, layer.held_gradient, kernels_of(inside, border),
                        kernels_of(back_inside, back_border));
}

void Model::make_raising_halo(Layer& layer, const Layer& before) {
  const Part& part = *layer.raising;
  const muster_tensor to = own_of(layer.held, *layer.part), from = own_of(layer.held_gradient, *layer.part);
  const auto forward = [&](const muster_halo_box& box) {
    const muster_interpolation n = raising_of(part, before.results, layer.items, box);
    return muster_interpolate_forward(&n, layer.raised, to);
  };
  const auto by_items = [&](const muster_halo_box& box) {
    const muster_interpolation n = raising_of(part, before.results, layer.items, box);
    return muster_interpolate_backward(&n, from, layer.raised_gradient, 0);
  };
  const auto inside = plans_of(runtime_, {part.info().interior}, forward);
  const auto border = plans_of(runtime_, part.boundary(), forward);
  const auto back_inside = plans_of(runtime_, {part.info().own}, by_items);
  const auto back_border = plans_of(runtime_, part.rim(), by_items);
  layer.raising_halo = add_halo(layer.spec.name + " raised", part, layer.raised, layer.raised_gradient,
                                kernels_of(inside, border), kernels_of(back_inside, back_border));
}

Program::Call Model::halo_call(muster_halo halo, bool back) {
  return [halos = halos_.get(), halo, back](muster_point after) {
    muster_point done = MUSTER_POINT_NONE;
    check(back ? muster_halo_backward(halos, halo, after, &done)
               : muster_halo_forward(halos, halo, after, &done));
    return done;
  };
}

// ---- forward -----------------------------------------------------------------------------------------

// Writes the own items of what the layer holds.
void Model::record_input(std::size_t index) {
  Layer& layer = layers_[index];
  Program& program = layer.forward;
  const muster_tensor own = own_of(layer.held, *layer.part);
  switch (layer.spec.input) {
    case LayerSpec::Input::kField:
      program.kernel(muster_copy(inputs_, channels_of(own, 0, kInputs)));
      for (std::int64_t sample = 0; sample < samples_ && patch_.points() > 0; ++sample) {
        muster_tensor places = channels_of(own, kInputs, kPlaces);
        places.offset_bytes += static_cast<std::uint64_t>(sample * places.stride[0]) * sizeof(float);
        places.size[0] = 1;
        program.kernel(muster_spread(position(units_.weight(0, 0)), places, 1.0, 0));
      }
      return;
    case LayerSpec::Input::kPrevious:
      return program.kernel(muster_gelu_forward(layers_[index - 1].normed, own));
    case LayerSpec::Input::kRaised: {
      const Layer& skip = layers_[*layer.spec.skip];
      program.kernel(muster_gelu_forward(layers_[index - 1].normed, own_of(layer.raised, *layer.raising)));
      program.call(halo_call(layer.raising_halo, false));
      program.kernel(muster_axpby(1.0, own_of(skip.held, *skip.part), 1.0, own));
    }
  }
}

// From what it holds to its normed sums.
void Model::record_layer(Program& program, Layer& layer) {
  program.call(halo_call(layer.halo, false));
  if (!layer.spec.has_norm) return;
  const bool is_cut = sharing_.domain.size > 1;
  muster_tensor all = layer.all_statistics, own = layer.statistics;
  if (!is_cut) own = muster_view3(all.buffer, 0, MUSTER_F64, all.size[1], all.size[2], 3);
  program.kernel(muster_group_norm_statistics(layer.sums_up, own));
  program.join(program.collective(MUSTER_LANE_SMALL,
                                  all_gather(sharing_.domain.group, own, {all.buffer, all.offset_bytes})));
  program.kernel(muster_group_norm_merge(all, layer.merged, kNormEpsilon));
  const std::size_t unit = unit_of(layer);
  program.kernel(muster_group_norm_forward(layer.sums_up, layer.merged, units_.weight(unit, kScale),
                                           units_.weight(unit, kShift), layer.normed));
}

void Model::forward() {
  muster_point position = units_.begin_forward(0), last = MUSTER_POINT_NONE;
  for (Layer& layer : layers_) {
    const std::array ready{units_.begin_forward(unit_of(layer)), std::exchange(position, MUSTER_POINT_NONE)};
    last = layer.forward.replay(ready);
    if (&layer == &layers_.front()) units_.end_forward(0, last);
    units_.end_forward(unit_of(layer), last);
  }
}

// ---- loss ---------------------------------------------------------------------------------------------

// The mean over samples, winds and points, by area. Its gradient is left where the last layer's backward
// reads it.
void Model::record_loss() {
  double area = 0.0;
  for (std::int64_t row = 0; row < grid_.rows; ++row)
    area += grid_.weight(row) * static_cast<double>(grid_.columns);
  const double each = 1.0 / (area * static_cast<double>(kWinds * samples_));
  const muster_tensor& result = layers_.back().sums_up;
  const muster_tensor gradient = tensor_in(gradient_, list_of(layers_.back().part->info().results.length));
  loss_.kernel(muster_axpby(1.0, result, -1.0, truth_));
  loss_.kernel(muster_product(truth_, weights_, gradient, 2.0 * each, 0));
  loss_.kernel(muster_product(truth_, gradient, result, 0.5, 0));
  loss_.kernel(muster_sum(result, mean_loss_, 1.0 / static_cast<double>(sharing_.dp_size), 0));
  loss_reduced_ = loss_.collective(MUSTER_LANE_SMALL, all_reduce(sharing_.all, MUSTER_SUM, mean_loss_));
}

void Model::loss() {
  loss_.replay();
}

// ---- backward -----------------------------------------------------------------------------------------

// The next layer's backward has left it: of its own items, or of those that it has raised.
muster_tensor Model::output_gradient(std::size_t index) const {
  const Layer& next = layers_[index + 1];
  return next.raising ? own_of(next.raised_gradient, *next.raising) : own_of(next.held_gradient, *next.part);
}

// From the gradient of the layer's output to that of its sums, where its halo reads it.
void Model::record_norm_backward(std::size_t index) {
  Layer& layer = layers_[index];
  Program& program = layer.backward;
  if (&layer == &layers_.back()) return;
  const std::size_t unit = unit_of(layer);
  const muster_tensor gradient = tensor_in(gradient_, list_of(layer.part->info().results.length));
  program.kernel(muster_gelu_backward(output_gradient(index), layer.normed, gradient));
  if (!layer.spec.has_norm) return;
  const muster_tensor scale = units_.weight(unit, kScale);
  program.kernel(muster_group_norm_backward_sums(gradient, layer.sums_up, layer.merged, scale, layer.sums,
                                                 units_.gradient(unit, kScale), units_.gradient(unit, kShift),
                                                 0));
  program.join(
      program.collective(MUSTER_LANE_SMALL, all_reduce(sharing_.domain.group, MUSTER_SUM, layer.sums)));
  program.kernel(
      muster_group_norm_backward(gradient, layer.sums_up, layer.merged, scale, layer.sums, gradient));
}

void Model::record_input_backward(std::size_t index) {
  Layer& layer = layers_[index];
  Program& program = layer.backward;
  program.call(halo_call(layer.halo, true));
  const muster_tensor own = own_of(layer.held_gradient, *layer.part);
  if (layer.raising) program.call(halo_call(layer.raising_halo, true));
  for (const Layer& later : layers_)
    if (later.spec.skip == index)
      program.kernel(muster_axpby(1.0, own_of(later.held_gradient, *later.part), 1.0, own));
  if (layer.spec.input != LayerSpec::Input::kField) return;
  const muster_tensor whole = units_.gradient(0, 0);
  if (whole.size[0] != patch_.rows) program.kernel(muster_fill(whole, 0.0));
  program.kernel(muster_sum_over(channels_of(own, kInputs, kPlaces), position(whole), 1.0, 0));
}

// Layers in reverse: the gradients of each are sent off while the next one computes.
void Model::backward() {
  for (auto layer = layers_.rbegin(); layer != layers_.rend(); ++layer) {
    const std::array<muster_point, 2> ready = units_.begin_backward(unit_of(*layer));
    std::vector<muster_point> after(ready.begin(), ready.end());
    const bool first = &*layer == &layers_.front();
    if (first)
      for (const muster_point point : units_.begin_backward(0)) after.push_back(point);
    const muster_point last = layer->backward.replay(after);
    units_.end_backward(unit_of(*layer), last);
    if (first) units_.end_backward(0, last);
  }
}

}  // namespace winds
