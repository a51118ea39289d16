// Layouts of the C API, said in a line.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include <gtest/gtest.h>
#include <muster/layouts.h>

namespace muster::test {

using Numbers = std::vector<std::int64_t>;
using Axes = std::vector<muster_layout_axis>;
using LayoutHandle = std::unique_ptr<muster_layout, muster_status_t (*)(muster_layout*)>;

inline muster_layout_axis replicate(const char* name, std::int32_t ranks) {
  muster_layout_axis axis = MUSTER_LAYOUT_AXIS_INIT;
  axis.name = name;
  axis.ranks = ranks;
  return axis;
}

inline muster_layout_axis shard(const char* name, std::int32_t ranks, std::int32_t dim,
                                muster_split split = MUSTER_SPLIT_CEIL) {
  muster_layout_axis axis = replicate(name, ranks);
  axis.placement = MUSTER_SHARD;
  axis.dim = dim;
  axis.split = split;
  return axis;
}

inline muster_layout_axis partial(const char* name, std::int32_t ranks, muster_redop redop = MUSTER_SUM) {
  muster_layout_axis axis = replicate(name, ranks);
  axis.placement = MUSTER_PARTIAL;
  axis.redop = redop;
  return axis;
}

inline muster_layout_options described(const Numbers& shape, const Axes& axes) {
  muster_layout_options options = MUSTER_LAYOUT_OPTIONS_INIT;
  options.dims = static_cast<std::int32_t>(shape.size());
  std::copy(shape.begin(), shape.end(), options.shape);
  options.axis_count = static_cast<std::uint32_t>(axes.size());
  std::copy(axes.begin(), axes.end(), options.axes);
  return options;
}

inline LayoutHandle made(const muster_layout_options& options, muster_session* session = nullptr) {
  muster_layout* layout = nullptr;
  EXPECT_EQ(muster_layout_create(session, &options, &layout), MUSTER_OK) << muster_last_error();
  return LayoutHandle(layout, &muster_layout_destroy);
}
inline LayoutHandle made(const Numbers& shape, const Axes& axes, muster_session* session = nullptr) {
  return made(described(shape, axes), session);
}

inline Numbers local_shape(const LayoutHandle& layout, std::int32_t rank, std::size_t dims) {
  Numbers shape(MUSTER_TENSOR_DIMS_MAX, -1);
  EXPECT_EQ(muster_layout_local_shape(layout.get(), rank, shape.data()), MUSTER_OK) << muster_last_error();
  EXPECT_TRUE(std::all_of(shape.begin() + static_cast<std::ptrdiff_t>(dims), shape.end(),
                          [](std::int64_t length) { return length == 0; }));
  shape.resize(dims);
  return shape;
}

inline std::vector<muster_box> pieces(const LayoutHandle& layout, std::int32_t rank) {
  std::size_t count = 0;
  EXPECT_EQ(muster_layout_boxes(layout.get(), rank, nullptr, 0, &count), MUSTER_OK) << muster_last_error();
  std::vector<muster_box> found(count);
  EXPECT_EQ(muster_layout_boxes(layout.get(), rank, found.data(), count, &count), MUSTER_OK);
  EXPECT_EQ(count, found.size());
  return found;
}

}  // namespace muster::test
