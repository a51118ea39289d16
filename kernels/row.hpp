// Rows of views as contiguous floats. A contiguous f32 row is used in place; a strided or 16-bit row goes
// through a buffer. So a family writes its arithmetic once, for float pointers.
//
// Pure except for scratch(), whose memory belongs to the calling thread.
#pragma once

#include "kernels/element.hpp"

#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <vector>

namespace muster::kernels {

// Replace the output's elements, or add to them with one rounding.
enum class Write : std::uint8_t { kReplace, kAdd };
constexpr Write write_of(std::int64_t accumulate) {
  return accumulate != 0 ? Write::kAdd : Write::kReplace;
}

// The most elements of a row that goes through scratch. Each worker keeps up to eight such rows per kernel
// for its lifetime.
inline constexpr std::int64_t kRowElementsMax = std::int64_t{1} << 20;

// At least `count` floats of this thread, for the kernel that Use names, with the contents of the last use.
// The memory grows to the largest request and is never freed: checks limit rows to kRowElementsMax.
template<class Use>
float* scratch(std::int64_t count) {
  thread_local std::vector<float> floats;
  if (static_cast<std::int64_t>(floats.size()) < count) floats.resize(static_cast<std::size_t>(count));
  return floats.data();
}

// A row: `count` elements of a view, the first at `first`, `step` apart (both in elements).
struct Row {
  const Tensor& view;
  std::int64_t first;
  std::int64_t step;
  std::int64_t count;

  bool in_place() const { return view.dtype == MUSTER_F32 && (step == 1 || count <= 1); }
};

// Row i of [rows, columns], and a part of it.
inline Row row_of(const Tensor& t, std::int64_t i) {
  return {t, i * t.stride[0], t.stride[1], t.size[1]};
}
inline Row row_of(const Tensor& t, std::int64_t i, Range columns) {
  return {t, i * t.stride[0] + columns.begin * t.stride[1], t.stride[1], columns.end - columns.begin};
}
// A [count] view, and a part of it.
inline Row whole(const Tensor& t) {
  return {t, 0, t.stride[0], t.size[0]};
}
inline Row piece_of(const Tensor& t, Range range) {
  return {t, range.begin * t.stride[0], t.stride[0], range.end - range.begin};
}

// The row's values: in place, or copied to `buffer`.
inline const float* read(const Row& row, float* buffer) {
  if (row.in_place()) return elements<float>(row.view) + row.first;
  dispatch_float(row.view.dtype, [&]<class E>(std::type_identity<E>) {
    const E* source = elements<E>(row.view) + row.first;
    if (row.step == 1) {
      for (std::int64_t i = 0; i < row.count; ++i) buffer[i] = load(source + i);
    } else {
      for (std::int64_t i = 0; i < row.count; ++i) buffer[i] = load(source + i * row.step);
    }
  });
  return buffer;
}

// Where to compute the values for write(): in the row itself if no further step is needed, else in `buffer`.
inline float* target(const Row& row, Write how, float* buffer) {
  return row.in_place() && how == Write::kReplace ? elements<float>(row.view) + row.first : buffer;
}

// Writes `values` to the row; does nothing if they were computed there.
inline void write(const Row& row, Write how, const float* values) {
  if (values == target(row, how, nullptr)) return;
  dispatch_float(row.view.dtype, [&]<class E>(std::type_identity<E>) {
    E* p = elements<E>(row.view) + row.first;
    if (how == Write::kAdd) {
      for (std::int64_t i = 0; i < row.count; ++i)
        store(p + i * row.step, load(p + i * row.step) + values[i]);
    } else if (row.step == 1) {
      for (std::int64_t i = 0; i < row.count; ++i) store(p + i, values[i]);
    } else {
      for (std::int64_t i = 0; i < row.count; ++i) store(p + i * row.step, values[i]);
    }
  });
}

// One element of a F32 [count] view of statistics.
inline float& statistic(const Tensor& t, std::int64_t i) {
  return elements<float>(t)[i * t.stride[0]];
}

}  // namespace muster::kernels
