// Elements of strided views: typed load and store, dispatch on dtype, and a walk over several views of one
// shape.
//
// Pure; the views were checked before (see Kernel::check).
#pragma once

#include "api/base/assert.hpp"
#include "api/base/dtype.hpp"
#include "kernels/kernel.hpp"
#include "kernels/math/float16.hpp"
#include "kernels/math/float8.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace muster::kernels {

using math::Bf16;
using math::F16;
using math::F8E4m3;
using math::F8E5m2;

// Signed, as strides are.
constexpr std::int64_t element_bytes(muster_dtype dtype) {
  return static_cast<std::int64_t>(dtype_bytes(dtype));
}

// The typed start of a view.
template<class E>
E* elements(const Tensor& t) {
  return reinterpret_cast<E*>(t.data);
}

// Loads an element as the type that the kernel computes in: double for f64, else float.
template<class E>
auto load(const E* p) {
  if constexpr (std::is_floating_point_v<E>)
    return *p;
  else
    return math::to_float(*p);
}

// Stores with one rounding to the element's dtype.
template<class E, class V>
void store(E* p, V value) {
  if constexpr (std::is_floating_point_v<E>)
    *p = static_cast<E>(value);
  else if constexpr (std::is_same_v<E, Bf16>)
    *p = math::to_bf16(value);
  else if constexpr (std::is_same_v<E, F16>)
    *p = math::to_f16(value);
  else if constexpr (std::is_same_v<E, F8E4m3>)
    *p = math::to_f8_e4m3(value);
  else
    *p = math::to_f8_e5m2(value);
}

template<class T>
constexpr muster_dtype dtype_of() {
  if constexpr (std::is_same_v<T, float>) return MUSTER_F32;
  if constexpr (std::is_same_v<T, Bf16>) return MUSTER_BF16;
  if constexpr (std::is_same_v<T, F16>) return MUSTER_F16;
  if constexpr (std::is_same_v<T, double>) return MUSTER_F64;
  if constexpr (std::is_same_v<T, std::int32_t>) return MUSTER_I32;
  if constexpr (std::is_same_v<T, std::int64_t>) return MUSTER_I64;
  if constexpr (std::is_same_v<T, std::uint8_t>) return MUSTER_U8;
  if constexpr (std::is_same_v<T, std::int8_t>) return MUSTER_I8;
  if constexpr (std::is_same_v<T, F8E4m3>) return MUSTER_F8_E4M3;
  if constexpr (std::is_same_v<T, F8E5m2>) return MUSTER_F8_E5M2;
}
// Calls f(std::type_identity<E>{}) with the element type of `dtype`, which must be one of the listed types:
// the kernel's check has refused all others.
template<class... E, class F>
void dispatch(muster_dtype dtype, F&& f) {
  const bool found = ((dtype == dtype_of<E>() && (f(std::type_identity<E>{}), true)) || ...);
  MUSTER_ASSERT(found);
}
// The same for the floats that most kernels take, for all that a kernel may compute with, and for all dtypes:
// 8-bit floats are only stored and moved.
template<class F>
void dispatch_float(muster_dtype dtype, F&& f) {
  dispatch<float, Bf16>(dtype, f);
}
template<class F>
void dispatch_any_float(muster_dtype dtype, F&& f) {
  dispatch<float, Bf16, F16, double>(dtype, f);
}
template<class F>
void dispatch_any(muster_dtype dtype, F&& f) {
  dispatch<float, Bf16, F16, double, std::int32_t, std::int64_t, std::uint8_t, std::int8_t, F8E4m3, F8E5m2>(
      dtype, f);
}

// `count` elements are cut into parts of `per_part`; part i owns [begin, end).
struct Range {
  std::int64_t begin;
  std::int64_t end;
};
constexpr std::uint32_t parts_of(std::int64_t count, std::int64_t per_part) {
  return static_cast<std::uint32_t>((count + per_part - 1) / per_part);
}
constexpr Range range_of(std::int64_t count, std::int64_t per_part, std::uint32_t part) {
  const std::int64_t begin = per_part * part;
  return {begin, std::min(count, begin + per_part)};
}

// Walks N views of one shape together, in row-major order. Dims that are contiguous in all views are merged,
// so that runs along the last dim are as long as possible.
//
// Owns    the shape and the strides; not the data.
// Thread  a value; one at a time.
// Bound   MUSTER_TENSOR_DIMS_MAX dims.
// Fails   never: the caller has checked that the shapes are equal.
template<std::size_t N>
class Walk {
 public:
  using Offsets = std::array<std::int64_t, N>;  // elements from each view's start

  explicit Walk(const std::array<const Tensor*, N>& views) {
    const Tensor& shape = *views[0];
    if (shape.count() == 0) {  // an empty view may have any strides, so do not use them
      size_[0] = 0;
      stride_[0].fill(1);
      dims_ = 1;
      return;
    }
    for (std::int32_t d = 0; d < shape.dims; ++d) {
      const auto i = static_cast<std::size_t>(d);
      if (shape.size[i] == 1) continue;
      Offsets stride{};
      for (std::size_t v = 0; v < N; ++v) stride[v] = views[v]->stride[i];
      if (dims_ > 0 && follows(stride, shape.size[i])) {
        size_[dims_ - 1] *= shape.size[i];
        stride_[dims_ - 1] = stride;
      } else {
        size_[dims_] = shape.size[i];
        stride_[dims_++] = stride;
      }
    }
    if (dims_ == 0) {
      size_[0] = 1;
      stride_[0].fill(1);
      dims_ = 1;
    }
  }

  std::int64_t count() const {
    std::int64_t n = 1;
    for (std::size_t d = 0; d < dims_; ++d) n *= size_[d];
    return n;
  }
  // Elements between neighbours of a run, per view.
  const Offsets& step() const { return stride_[dims_ - 1]; }
  // Whether neighbours of a run lie side by side in all views.
  bool unit_step() const {
    return std::all_of(step().begin(), step().end(), [](std::int64_t s) { return s == 1; });
  }

  // Calls f(offsets, length) for each run of the elements [begin, end) in row-major order.
  template<class F>
  void over(std::int64_t begin, std::int64_t end, F&& f) const {
    const std::int64_t run = size_[dims_ - 1];
    while (begin < end) {
      const std::int64_t length = std::min(run - begin % run, end - begin);
      f(offsets_of(begin), length);
      begin += length;
    }
  }

 private:
  bool follows(const Offsets& stride, std::int64_t size) const {
    for (std::size_t v = 0; v < N; ++v)
      if (stride_[dims_ - 1][v] != stride[v] * size) return false;
    return true;
  }
  Offsets offsets_of(std::int64_t index) const {
    Offsets offsets{};
    for (std::size_t d = dims_; d-- > 0;) {
      const std::int64_t at = index % size_[d];
      index /= size_[d];
      for (std::size_t v = 0; v < N; ++v) offsets[v] += at * stride_[d][v];
    }
    return offsets;
  }

  // Only the first dims_ entries are ever set: each part of a kernel makes a walk.
  std::size_t dims_ = 0;
  std::array<std::int64_t, MUSTER_TENSOR_DIMS_MAX> size_;
  std::array<Offsets, MUSTER_TENSOR_DIMS_MAX> stride_;
};

// Loads an index from memory that its client may change at any time. One load, so that the kernel uses the
// value that it has checked.
inline std::int32_t load_index(const std::int32_t* index) {
  return __atomic_load_n(index, __ATOMIC_RELAXED);
}

}  // namespace muster::kernels
