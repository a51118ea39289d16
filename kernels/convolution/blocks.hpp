// Blocks of an array [samples, items..., channels], which oneDNN takes dense and in f32: in place where they
// are so, else through memory of this thread.
#pragma once

#include "kernels/convolution/geometry.hpp"
#include "kernels/element.hpp"
#include "kernels/row.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace muster::kernels::convolution {

// One sample's region of an array, and some of its channels.
struct FieldBlock {
  const Tensor* array;
  std::size_t dims;  // spatial ones
  std::int64_t sample;
  Region region;  // in numbers of the field
  Spatial begin;  // where the array begins
  Range channels;

  std::int64_t count() const;
  bool is_dense() const;   // in f32
  float* address() const;  // of its first element, if it is dense
};

// Visits each run of channels of the block: visit(element of the array, element of the dense block).
template<class Visit>
void each_run(const FieldBlock& b, Visit visit) {
  const Tensor& t = *b.array;
  std::array<std::int64_t, 3> size{1, 1, 1}, stride{0, 0, 0};
  std::int64_t first = b.sample * t.stride[0] + b.channels.begin * t.stride[b.dims + 1];
  for (std::size_t d = 0; d < b.dims; ++d) {
    size[d] = b.region.end[d] - b.region.begin[d];
    stride[d] = t.stride[d + 1];
    first += (b.region.begin[d] - b.begin[d]) * stride[d];
  }
  const std::int64_t channels = b.channels.end - b.channels.begin;
  std::int64_t dense = 0;
  for (std::int64_t i = 0; i < size[0]; ++i)
    for (std::int64_t j = 0; j < size[1]; ++j)
      for (std::int64_t k = 0; k < size[2]; ++k, dense += channels)
        visit(first + i * stride[0] + j * stride[1] + k * stride[2], dense);
}

// The block's values: in place, or copied to this thread's memory for `Use`.
template<class Use>
const float* read_block(const FieldBlock& b) {
  if (b.is_dense()) return b.address();
  float* const to = scratch<Use>(b.count());
  const std::int64_t step = b.array->stride[b.dims + 1], channels = b.channels.end - b.channels.begin;
  dispatch_float(b.array->dtype, [&]<class E>(std::type_identity<E>) {
    const E* const from = elements<E>(*b.array);
    each_run(b, [&](std::int64_t at, std::int64_t dense) {
      for (std::int64_t c = 0; c < channels; ++c) to[dense + c] = load(from + at + c * step);
    });
  });
  return to;
}

// Writes dense values to the block, or adds them.
inline void write_block(const FieldBlock& b, Write how, const float* values) {
  const std::int64_t step = b.array->stride[b.dims + 1], channels = b.channels.end - b.channels.begin;
  dispatch_float(b.array->dtype, [&]<class E>(std::type_identity<E>) {
    E* const to = elements<E>(*b.array);
    each_run(b, [&](std::int64_t at, std::int64_t dense) {
      for (std::int64_t c = 0; c < channels; ++c) {
        E* const element = to + at + c * step;
        store(element, how == Write::kAdd ? load(element) + values[dense + c] : values[dense + c]);
      }
    });
  });
}

// Each element of a channel gets that channel's value; null: zeros.
inline void fill_block(const FieldBlock& b, const float* by_channel) {
  const std::int64_t step = b.array->stride[b.dims + 1], channels = b.channels.end - b.channels.begin;
  dispatch_float(b.array->dtype, [&]<class E>(std::type_identity<E>) {
    E* const to = elements<E>(*b.array);
    each_run(b, [&](std::int64_t at, std::int64_t) {
      for (std::int64_t c = 0; c < channels; ++c)
        store(to + at + c * step, by_channel == nullptr ? 0.0F : by_channel[c]);
    });
  });
}

}  // namespace muster::kernels::convolution
