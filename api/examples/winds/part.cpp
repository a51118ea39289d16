#include "api/examples/winds/part.hpp"

#include "api/examples/training/runtime.hpp"

#include <algorithm>

namespace winds {

using namespace training;

FieldLayout layout_of(const Shape& shape, const RankGrid& cut) {
  muster_layout_options options = MUSTER_LAYOUT_OPTIONS_INIT;
  options.dims = kDims;
  std::copy(shape.begin(), shape.end(), options.shape);
  options.axis_count = 2;
  const std::array sides{cut.rows, cut.columns};
  for (std::size_t side = 0; side < sides.size(); ++side) {
    muster_layout_axis& axis = options.axes[side];
    axis.ranks = sides[side];
    axis.placement = MUSTER_SHARD;
    axis.dim = static_cast<std::int32_t>(side) + 1;
    axis.split = MUSTER_SPLIT_BALANCED;
  }
  muster_layout* layout = nullptr;
  check(muster_layout_create(nullptr, &options, &layout));
  return FieldLayout(layout);
}

Part::Part(const muster_layout* items, const Windows& windows, std::int32_t rank) : rank_(rank) {
  muster_stencil_options options = MUSTER_STENCIL_OPTIONS_INIT;
  options.layout = items;
  options.windows = windows.data();
  muster_stencil* stencil = nullptr;
  check(muster_stencil_create(&options, &stencil));
  stencil_.reset(stencil);
  check(muster_stencil_query(stencil, rank, MUSTER_CORNERS_DIRECT, &info_));
}

std::vector<muster_halo_box> Part::boundary() const {
  std::size_t count = 0;
  check(muster_stencil_boxes(stencil_.get(), rank_, -1, nullptr, 0, &count));
  std::vector<muster_halo_box> boxes(count);
  check(muster_stencil_boxes(stencil_.get(), rank_, -1, boxes.data(), boxes.size(), &count));
  return boxes;
}

// Whole rows above and below the own items, and what is beside them.
std::vector<muster_halo_box> Part::rim() const {
  std::vector<muster_halo_box> boxes;
  muster_halo_box middle = info_.held;
  for (const std::size_t dim : {std::size_t{1}, std::size_t{2}}) {
    const std::int64_t begin = middle.offset[dim], own = info_.own.offset[dim];
    const std::int64_t own_end = own + info_.own.length[dim], end = begin + middle.length[dim];
    const std::array sides{std::array{begin, own}, std::array{own_end, end}};
    for (const auto& [from, to] : sides) {
      if (from == to) continue;
      muster_halo_box& box = boxes.emplace_back(middle);
      box.offset[dim] = from;
      box.length[dim] = to - from;
    }
    middle.offset[dim] = own;
    middle.length[dim] = info_.own.length[dim];
  }
  return boxes;
}

FieldLayout Part::result() const {
  muster_layout* layout = nullptr;
  check(muster_stencil_result(stencil_.get(), &layout));
  return FieldLayout(layout);
}

std::vector<std::int64_t> Part::lengths(const RankGrid& cut, std::size_t dim) const {
  const std::int32_t ranks = dim == 1 ? cut.rows : cut.columns, step = dim == 1 ? cut.columns : 1;
  std::vector<std::int64_t> lengths;
  for (std::int32_t rank = 0; rank < ranks; ++rank) {
    muster_halo_info info = MUSTER_HALO_INFO_INIT;
    check(muster_stencil_query(stencil_.get(), rank * step, MUSTER_CORNERS_DIRECT, &info));
    lengths.push_back(info.own.length[dim]);
  }
  return lengths;
}

Windows convolution_windows(std::int64_t stride, std::int64_t channels) {
  muster_window whole = MUSTER_WINDOW_INIT;
  whole.kind = MUSTER_WINDOW_WHOLE;
  whole.length = channels;
  return {muster_window MUSTER_WINDOW_INIT, muster_window_convolution(3, stride, 1, 1, 1, MUSTER_PAD_ZEROS),
          muster_window_convolution(3, stride, 1, 1, 1, MUSTER_PAD_CIRCULAR), whole};
}

Windows raising_windows(const std::vector<std::int64_t>& rows, const std::vector<std::int64_t>& columns) {
  Windows windows;
  windows.fill(MUSTER_WINDOW_INIT);
  const std::array lists{&rows, &columns};
  for (std::size_t side = 0; side < lists.size(); ++side) {
    muster_window& window = windows[side + 1];
    window.kind = MUSTER_WINDOW_LINEAR;
    window.lengths = lists[side]->data();
    window.length_count = static_cast<std::uint32_t>(lists[side]->size());
    for (const std::int64_t length : *lists[side]) window.length += length;
  }
  return windows;
}

muster_tensor box_of(muster_tensor array, const muster_halo_box& first, const muster_halo_box& box) {
  std::int64_t elements = 0;
  bool is_empty = false;  // then it lies nowhere, perhaps not even in the array
  for (std::size_t dim = 0; dim < kDims; ++dim) {
    is_empty = is_empty || box.length[dim] == 0;
    elements += (box.offset[dim] - first.offset[dim]) * array.stride[dim];
    array.size[dim] = box.length[dim];
  }
  if (!is_empty) array.offset_bytes += static_cast<std::uint64_t>(elements) * muster_dtype_bytes(array.dtype);
  return array;
}

muster_tensor channels_of(muster_tensor field, std::int64_t first, std::int64_t count) {
  const bool is_empty = std::find(field.size, field.size + kDims, 0) != field.size + kDims;
  if (!is_empty) field.offset_bytes += static_cast<std::uint64_t>(first) * muster_dtype_bytes(field.dtype);
  field.size[kDims - 1] = count;
  return field;
}

muster_convolution convolution_of(const Part& part, const Windows& windows, const muster_halo_box& box) {
  muster_convolution c = MUSTER_CONVOLUTION_INIT;
  for (std::size_t d = 0; d < 2; ++d) {
    c.stride[d] = windows[d + 1].stride;
    c.before[d] = windows[d + 1].before;
    c.x_offset[d] = part.info().held.offset[d + 1];
    c.y_offset[d] = part.info().results.offset[d + 1];
    c.offset[d] = box.offset[d + 1];
    c.length[d] = box.length[d + 1];
  }
  return c;
}

muster_interpolation raising_of(const Part& part, const Shape& items, const Shape& results,
                                const muster_halo_box& box) {
  muster_interpolation n = MUSTER_INTERPOLATION_INIT;
  n.mode = MUSTER_WINDOW_LINEAR;
  for (std::size_t d = 0; d < 2; ++d) {
    n.items[d] = items[d + 1];
    n.results[d] = results[d + 1];
    n.x_offset[d] = part.info().held.offset[d + 1];
    n.y_offset[d] = part.info().results.offset[d + 1];
    n.offset[d] = box.offset[d + 1];
    n.length[d] = box.length[d + 1];
  }
  return n;
}

}  // namespace winds
