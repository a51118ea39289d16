#include "tests/bench/domain/stack_rank.hpp"

#include <algorithm>
#include <array>
#include <numeric>
#include <utility>

namespace muster::bench::domain {

using training::check;
using Kind = StackLayer::Kind;

namespace {

constexpr std::size_t kFieldDims = 4;  // samples, rows, columns, channels

std::vector<std::int64_t> list_of(const muster_halo_box& box) {
  return {box.length, box.length + kFieldDims};
}

bool is_empty(const muster_tensor& tensor) {
  return std::find(tensor.size, tensor.size + tensor.dims, 0) != tensor.size + tensor.dims;
}
bool is_empty(const muster_halo_box& box) {
  return std::find(box.length, box.length + kFieldDims, 0) != box.length + kFieldDims;
}

std::int64_t elements_of(const muster_tensor& tensor) {
  return std::accumulate(tensor.size, tensor.size + tensor.dims, std::int64_t{1}, std::multiplies<>());
}

// A box of an array that begins with the item `first`.
muster_tensor box_of(muster_tensor array, const muster_halo_box& first, const muster_halo_box& box) {
  std::int64_t at = 0;
  for (std::size_t d = 0; d < kFieldDims; ++d) {
    at += (box.offset[d] - first.offset[d]) * array.stride[d];
    array.size[d] = box.length[d];
  }
  if (!is_empty(box)) array.offset_bytes += static_cast<std::uint64_t>(at) * sizeof(float);
  return array;
}

LayoutHandle layout_of(const Stack& stack) {
  muster_layout_options options = MUSTER_LAYOUT_OPTIONS_INIT;
  options.dims = kFieldDims;
  const std::array shape{std::int64_t{1}, stack.field.rows, stack.field.columns, stack.field.channels};
  std::copy(shape.begin(), shape.end(), options.shape);
  options.axis_count = 1;
  options.axes[0].ranks = static_cast<std::int32_t>(stack.lengths.size());
  options.axes[0].placement = MUSTER_SHARD;
  options.axes[0].dim = 1;
  options.axes[0].split = MUSTER_SPLIT_GIVEN;
  options.axes[0].lengths = stack.lengths.data();
  options.axes[0].length_count = static_cast<std::uint32_t>(stack.lengths.size());
  muster_layout* layout = nullptr;
  check(muster_layout_create(nullptr, &options, &layout));
  return LayoutHandle(layout);
}

// The numbers of a convolution over a box, between arrays that begin with those items and results.
muster_convolution convolution_of(const StackLayer& layer, const muster_halo_box& items,
                                  const muster_halo_box& results, const muster_halo_box& box) {
  muster_convolution c = MUSTER_CONVOLUTION_INIT;
  for (std::size_t d = 0; d < 2; ++d) {
    c.stride[d] = layer.stride;
    c.before[d] = layer.pad;
    c.x_offset[d] = items.offset[d + 1];
    c.y_offset[d] = results.offset[d + 1];
    c.offset[d] = box.offset[d + 1];
    c.length[d] = box.length[d + 1];
  }
  return c;
}

std::vector<muster_halo_box> boundary_of(const muster_stencil* stencil, std::int32_t rank) {
  std::size_t count = 0;
  check(muster_stencil_boxes(stencil, rank, -1, nullptr, 0, &count));
  std::vector<muster_halo_box> boxes(count);
  check(muster_stencil_boxes(stencil, rank, -1, boxes.data(), boxes.size(), &count));
  return boxes;
}

// Plans of one kernel over each box.
template<class Make>
std::vector<muster_plan> plans_of(training::Runtime& runtime, const std::vector<muster_halo_box>& boxes,
                                  Make make) {
  std::vector<muster_plan> plans;
  for (const muster_halo_box& box : boxes)
    if (!is_empty(box)) plans.push_back(runtime.plan(make(box)));
  return plans;
}

muster_halo_kernels kernels_of(const std::vector<muster_plan>& interior,
                               const std::vector<muster_plan>& boundary) {
  return {interior.data(), boundary.data(), static_cast<std::uint32_t>(interior.size()),
          static_cast<std::uint32_t>(boundary.size())};
}

}  // namespace

StackRank::StackRank(training::Runtime& runtime, const Stack& stack)
    : runtime_(runtime), stack_(stack), world_(runtime.group("world")), program_(runtime) {
  muster_halos_options set = MUSTER_HALOS_OPTIONS_INIT;
  set.group = world_;
  set.name = stack.name.c_str();
  muster_halos* halos = nullptr;
  check(muster_halos_create(runtime.session(), &set, &halos));
  halos_.reset(halos);
  LayoutHandle items = layout_of(stack);
  for (const StackLayer& layer : stack.layers) {
    Place& place = places_.emplace_back();
    place.items = std::move(items);
    make_stencil(layer, place);
    muster_layout* results = nullptr;
    check(muster_stencil_result(place.stencil.get(), &results));
    items.reset(results);
  }
  Place& last = places_.emplace_back();  // of the result
  last.items = std::move(items);
  make_stencil({}, last);
  allocate_parameters();
  allocate_fields();
  for (std::size_t i = 0; i < stack.layers.size(); ++i) {
    if (stack.layers[i].kind == Kind::kNorm) {
      record_norm(i);
    } else {
      make_halo(i);
      program_.call(halo_call(places_[i].halo, false));
    }
  }
  record_mean();
  for (std::size_t i = stack.layers.size(); i-- > 0;) {
    if (stack.layers[i].kind == Kind::kNorm)
      record_norm_back(i);
    else
      record_convolution_back(i);
  }
  if (!is_empty(parameter_gradients_))
    gradients_reduced_ = program_.collective(MUSTER_LANE_ALLREDUCE,
                                             training::all_reduce(world_, MUSTER_SUM, parameter_gradients_));
}

// A norm, and the result, read each item by itself.
void StackRank::make_stencil(const StackLayer& layer, Place& place) {
  std::array<muster_window, kFieldDims> windows;
  windows.fill(MUSTER_WINDOW_INIT);
  const bool is_convolution = layer.kind == Kind::kConvolution && layer.out > 0;
  if (is_convolution) {
    windows[1] = windows[2] =
        muster_window_convolution(layer.kernel, layer.stride, 1, layer.pad, layer.pad,
                                  layer.is_circular ? MUSTER_PAD_CIRCULAR : MUSTER_PAD_ZEROS);
    windows[3].kind = MUSTER_WINDOW_WHOLE;
    windows[3].length = layer.out;
  }
  muster_stencil_options options = MUSTER_STENCIL_OPTIONS_INIT;
  options.layout = place.items.get();
  options.windows = windows.data();
  muster_stencil* stencil = nullptr;
  check(muster_stencil_create(&options, &stencil));
  place.stencil.reset(stencil);
  check(muster_stencil_query(stencil, runtime_.rank(), MUSTER_CORNERS_DIRECT, &place.part));
  if (!is_convolution || layer.is_circular) return;
  muster_stencil* back = nullptr;
  check(muster_stencil_gradient(stencil, &back));
  place.back.reset(back);
  check(muster_stencil_query(back, runtime_.rank(), MUSTER_CORNERS_DIRECT, &place.back_part));
}

// ---- memory --------------------------------------------------------------------------------------------

// A rank may have none of the elements.
muster_tensor StackRank::tensor(muster_dtype dtype, const std::vector<std::int64_t>& shape) {
  const std::int64_t count =
      std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>());
  const std::uint64_t bytes = static_cast<std::uint64_t>(std::max<std::int64_t>(1, count)) *
                              static_cast<std::uint64_t>(muster_dtype_bytes(dtype));
  return muster_view(runtime_.allocate(bytes).handle, 0, dtype, static_cast<std::int32_t>(shape.size()),
                     shape.data());
}

std::span<float> StackRank::values_of(const muster_tensor& tensor) const {
  return {static_cast<float*>(runtime_.address(tensor)), static_cast<std::size_t>(elements_of(tensor))};
}

void StackRank::allocate_parameters() {
  parameters_ = tensor(MUSTER_F32, {stack_.parameters()});
  parameter_gradients_ = tensor(MUSTER_F32, {stack_.parameters()});
  std::uint64_t at = 0;
  for (std::size_t i = 0; i < stack_.layers.size(); ++i) {
    const StackLayer& layer = stack_.layers[i];
    Place& place = places_[i];
    const std::vector<float> values = stack_.parameters_of(i);
    std::copy(values.begin(), values.end(), values_of(parameters_).begin() + static_cast<std::ptrdiff_t>(at));
    std::vector<std::int64_t> shape{layer.out, layer.kernel, layer.kernel, layer.before.channels};
    if (layer.kind == Kind::kNorm) shape = {layer.before.channels};
    const auto view = [&](const muster_tensor& all, std::uint64_t first) {
      return muster_view(all.buffer, first * sizeof(float), MUSTER_F32,
                         static_cast<std::int32_t>(shape.size()), shape.data());
    };
    place.weight = view(parameters_, at);
    place.weight_gradient = view(parameter_gradients_, at);
    if (layer.kind == Kind::kNorm) {
      const std::uint64_t second = at + static_cast<std::uint64_t>(layer.before.channels);
      place.shift = view(parameters_, second);
      place.shift_gradient = view(parameter_gradients_, second);
    }
    at += values.size();
  }
}

void StackRank::allocate_fields() {
  gradients_.push_back(tensor(MUSTER_F32, list_of(places_.front().part.own)));
  for (std::size_t i = 0; i < places_.size(); ++i) {
    Place& place = places_[i];
    const muster_halo_info& part = place.part;
    place.held = tensor(MUSTER_F32, list_of(part.held));
    fields_.push_back(box_of(place.held, part.held, part.own));
    if (i == stack_.layers.size()) break;
    const StackLayer& layer = stack_.layers[i];
    if (place.back != nullptr) {
      place.held_gradient = tensor(MUSTER_F32, list_of(place.back_part.held));
      gradients_.push_back(box_of(place.held_gradient, place.back_part.held, place.back_part.own));
      continue;
    }
    if (layer.is_circular) place.held_gradient = tensor(MUSTER_F32, list_of(part.held));
    gradients_.push_back(tensor(MUSTER_F32, list_of(part.results)));
    if (layer.kind != Kind::kNorm) continue;
    place.statistics = tensor(MUSTER_F64, {1, layer.groups, 3});
    place.all_statistics = tensor(MUSTER_F64, {runtime_.ranks(), 1, layer.groups, 3});
    place.merged = tensor(MUSTER_F64, {1, layer.groups, 3});
    place.sums = tensor(MUSTER_F64, {1, layer.groups, 2});
  }
  const muster_halo_box& own = places_.front().part.own;
  const muster_halo_box& end = places_.back().part.own;
  weights_ = tensor(MUSTER_F32, list_of(end));
  if (stack_.is_weighted) weighted_ = tensor(MUSTER_F32, list_of(end));
  mean_sum_ = tensor(MUSTER_F64, {1, 1, 1, 1});
  const std::vector<float> weights =
      stack_.mean_weights(end.offset[1] * end.length[2] * end.length[3], elements_of(weights_));
  std::copy(weights.begin(), weights.end(), values_of(weights_).begin());
  const std::int64_t row = own.length[2] * own.length[3];
  auto* const first = static_cast<float*>(runtime_.address(fields_.front()));
  for (std::int64_t i = 0; i < own.length[1]; ++i) {
    const std::vector<float> values = stack_.input((own.offset[1] + i) * row, row);
    std::copy(values.begin(), values.end(), first + i * fields_.front().stride[1]);
  }
}

// ---- convolutions ----------------------------------------------------------------------------------------

void StackRank::make_halo(std::size_t index) {
  const StackLayer& layer = stack_.layers[index];
  Place& place = places_[index];
  const muster_halo_info& part = place.part;
  const bool fetches = place.back != nullptr;
  const muster_tensor& y = fields_[index + 1];
  const auto forward = [&](const muster_halo_box& box) {
    const muster_convolution c = convolution_of(layer, part.held, part.results, box);
    return muster_convolution_forward(&c, place.held, place.weight, muster_none(), y);
  };
  const muster_tensor dy = fetches ? place.held_gradient : gradients_[index + 1];
  const muster_halo_box& dy_box = fetches ? place.back_part.held : part.results;
  const muster_tensor dx = fetches ? gradients_[index] : place.held_gradient;
  const muster_halo_box& dx_box = fetches ? part.own : part.held;
  const auto by_items = [&](const muster_halo_box& box) {
    const muster_convolution c = convolution_of(layer, dx_box, dy_box, box);
    return muster_convolution_dgrad(&c, dy, place.weight, dx, 0);
  };
  const auto by_weights = [&](const muster_halo_box& box) {
    const muster_convolution c = convolution_of(layer, part.held, dy_box, box);
    return muster_convolution_wgrad(&c, dy, place.held, place.weight_gradient, muster_none(), 0);
  };
  const std::int32_t rank = runtime_.rank();
  const auto inside = plans_of(runtime_, {part.interior}, forward);
  const auto border = plans_of(runtime_, boundary_of(place.stencil.get(), rank), forward);
  std::vector<muster_plan> back_inside, back_border;
  if (fetches) {
    back_inside = plans_of(runtime_, {place.back_part.interior}, by_items);
    back_border = plans_of(runtime_, boundary_of(place.back.get(), rank), by_items);
  } else {
    back_border = plans_of(runtime_, {part.held}, by_items);
  }
  for (const muster_plan plan : plans_of(runtime_, {part.results}, by_weights)) back_inside.push_back(plan);
  muster_halo_options options = MUSTER_HALO_OPTIONS_INIT;
  const std::string name = "layer " + std::to_string(index);
  options.name = name.c_str();
  options.stencil = place.stencil.get();
  options.gradients = fetches ? MUSTER_HALO_FETCH : MUSTER_HALO_RETURN;
  options.held = place.held;
  options.held_gradients = place.held_gradient;
  options.forward = kernels_of(inside, border);
  options.backward = kernels_of(back_inside, back_border);
  check(muster_halo_create(halos_.get(), &options, &place.halo));
}

training::Program::Call StackRank::halo_call(muster_halo halo, bool back) {
  return [halos = halos_.get(), halo, back](muster_point after) {
    muster_point done = MUSTER_POINT_NONE;
    check(back ? muster_halo_backward(halos, halo, after, &done)
               : muster_halo_forward(halos, halo, after, &done));
    return done;
  };
}

void StackRank::record_convolution_back(std::size_t index) {
  const Place& place = places_[index];
  if (is_empty(place.part.results)) program_.kernel(muster_fill(place.weight_gradient, 0.0));
  program_.call(halo_call(place.halo, true));
  if (place.back == nullptr && !is_empty(place.part.own))
    program_.kernel(
        muster_copy(box_of(place.held_gradient, place.part.held, place.part.own), gradients_[index]));
}

// ---- norms and the mean --------------------------------------------------------------------------------

void StackRank::record_norm(std::size_t index) {
  const Place& place = places_[index];
  program_.kernel(muster_group_norm_statistics(fields_[index], place.statistics));
  program_.join(program_.collective(
      MUSTER_LANE_SMALL, training::all_gather(world_, place.statistics, {place.all_statistics.buffer, 0})));
  program_.kernel(muster_group_norm_merge(place.all_statistics, place.merged, kNormEpsilon));
  program_.kernel(
      muster_group_norm_forward(fields_[index], place.merged, place.weight, place.shift, fields_[index + 1]));
}

void StackRank::record_norm_back(std::size_t index) {
  const Place& place = places_[index];
  const muster_tensor& dy = gradients_[index + 1];
  program_.kernel(muster_group_norm_backward_sums(dy, fields_[index], place.merged, place.weight, place.sums,
                                                  place.weight_gradient, place.shift_gradient, 0));
  program_.join(program_.collective(MUSTER_LANE_SMALL, training::all_reduce(world_, MUSTER_SUM, place.sums)));
  program_.kernel(muster_group_norm_backward(dy, fields_[index], place.merged, place.weight, place.sums,
                                             gradients_[index]));
}

// The sum of all ranks, and the gradient that the mean leaves.
void StackRank::record_mean() {
  const muster_tensor& y = fields_.back();
  if (stack_.is_weighted && !is_empty(y)) program_.kernel(muster_product(y, weights_, weighted_, 1.0, 0));
  program_.kernel(muster_sum_over(stack_.is_weighted ? weighted_ : y, mean_sum_, 1.0, 0));
  mean_reduced_ = program_.collective(MUSTER_LANE_SMALL, training::all_reduce(world_, MUSTER_SUM, mean_sum_));
  const double each = 1.0 / static_cast<double>(stack_.result().elements());
  if (!is_empty(y)) program_.kernel(muster_axpby(each, weights_, 0.0, gradients_.back()));
}

double StackRank::mean() const {
  const auto* sum = static_cast<const double*>(runtime_.address(mean_sum_));
  return *sum / static_cast<double>(stack_.result().elements());
}

void StackRank::step() {
  runtime_.wait(program_.replay());
  for (const training::Mark mark : {mean_reduced_, gradients_reduced_})
    if (mark.entry >= 0) runtime_.wait(program_.point(mark));
}

}  // namespace muster::bench::domain
