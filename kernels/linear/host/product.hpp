// One matrix product on one host thread: c = a·b (+ c) (+ bias), for any strides, in f32 or bf16. The only
// folder of this family that knows oneDNN.
#pragma once

#include "kernels/element.hpp"

#include <cstdint>

namespace muster::kernels::linear::host {

// A strided view of two dims. Strides in elements.
struct Matrix {
  std::byte* data = nullptr;
  muster_dtype dtype = 0;
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  std::int64_t row_stride = 0;
  std::int64_t column_stride = 0;

  static Matrix of(const Tensor& t) {
    return {t.data, t.dtype, t.size[0], t.size[1], t.stride[0], t.stride[1]};
  }
  Matrix transposed() const { return {data, dtype, columns, rows, column_stride, row_stride}; }
  Matrix block(Range r, Range c) const {
    return {data + (r.begin * row_stride + c.begin * column_stride) * element_bytes(dtype),
            dtype,
            r.end - r.begin,
            c.end - c.begin,
            row_stride,
            column_stride};
  }
};

// a[m,k], b[k,n] and bias[n] (absent: data null) have one dtype; c[m,n] has it too or is f32.
struct Product {
  Matrix a;
  Matrix b;
  Matrix c;
  Matrix bias;  // one row
  bool accumulate = false;
};

// How bf16 inputs are multiplied: by the library's bf16 product, or converted to f32 block by block first.
enum class Bf16Path : std::uint8_t { kNative, kConvert };

// kNative where the processor multiplies bf16 itself; elsewhere the library would only emulate it, or refuse.
Bf16Path bf16_path_of_this_machine();

// Accumulates in f32 and rounds once. Any size may be zero: a product over no terms is zero, and c is still
// written. Allocates only what a thread keeps for its next call. bf16_path is not looked at for f32.
void multiply(const Product& product, Bf16Path bf16_path);

}  // namespace muster::kernels::linear::host
