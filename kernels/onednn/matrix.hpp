// A matrix product as a value.
#pragma once

#include "kernels/element.hpp"

#include <cstddef>
#include <cstdint>

namespace muster::kernels::onednn {

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

}  // namespace muster::kernels::onednn
