// Matrix products of tiles that fit the cache, and the packing of heads into them.
//
// Multiplications and additions are separate and in order of the inner index, so a product has the same bits
// on every machine. All functions here are inlined into a wide() call.
#pragma once

#include "kernels/row.hpp"

#include <algorithm>
#include <cstdint>
#include <cstring>

namespace muster::kernels::attention {

// Widths of right sides and results are padded to this, with zeros.
inline constexpr std::int64_t kPad = 16;
constexpr std::int64_t padded(std::int64_t n) {
  return (n + kPad - 1) / kPad * kPad;
}

// A factor of a product: element (i, j) is data[i·row_step + j·column_step]. A right one has its columns side
// by side, and its width is padded.
struct Factor {
  const float* data;
  std::int64_t row_step;
  std::int64_t column_step = 1;
};

// A product overwrites its result or is added to it.
enum class Onto : std::uint8_t { kNothing, kResult };

// kRows rows and kPad columns of a product, in registers.
template<std::int64_t kRows>
[[gnu::always_inline]] inline void multiply_strip(Factor a, Factor b, float* c, std::int64_t c_step,
                                                  std::int64_t depth, Onto onto) {
  using Eight = float __attribute__((vector_size(32)));
  Eight low[kRows];
  Eight high[kRows];
#pragma GCC unroll 8
  for (std::int64_t m = 0; m < kRows; ++m) {
    low[m] = Eight{};
    high[m] = Eight{};
    if (onto == Onto::kResult) {
      std::memcpy(&low[m], c + m * c_step, sizeof(Eight));
      std::memcpy(&high[m], c + m * c_step + 8, sizeof(Eight));
    }
  }
  for (std::int64_t k = 0; k < depth; ++k) {
    Eight b_low, b_high;
    std::memcpy(&b_low, b.data + k * b.row_step, sizeof(Eight));
    std::memcpy(&b_high, b.data + k * b.row_step + 8, sizeof(Eight));
    const float* column = a.data + k * a.column_step;
#pragma GCC unroll 8
    for (std::int64_t m = 0; m < kRows; ++m) {
      const float factor = column[m * a.row_step];
      low[m] += factor * b_low;
      high[m] += factor * b_high;
    }
  }
#pragma GCC unroll 8
  for (std::int64_t m = 0; m < kRows; ++m) {
    std::memcpy(c + m * c_step, &low[m], sizeof(Eight));
    std::memcpy(c + m * c_step + 8, &high[m], sizeof(Eight));
  }
}

// Rows of a strip: with 16 columns, 12 accumulators of 8 floats leave registers for two loads and a factor.
inline constexpr std::int64_t kStripRows = 6;

// c[rows, columns] = a[rows, depth] · b[depth, columns], or added to c. `columns` is a multiple of kPad.
inline void multiply(Factor a, Factor b, float* c, std::int64_t c_step, std::int64_t rows, std::int64_t depth,
                     std::int64_t columns, Onto onto) {
  for (std::int64_t n = 0; n < columns; n += kPad) {
    const Factor strip{b.data + n, b.row_step};
    std::int64_t m = 0;
    const auto rest = [&] { return Factor{a.data + m * a.row_step, a.row_step, a.column_step}; };
    for (; m + kStripRows <= rows; m += kStripRows)
      multiply_strip<kStripRows>(rest(), strip, c + m * c_step + n, c_step, depth, onto);
    if (m + 3 <= rows) {
      multiply_strip<3>(rest(), strip, c + m * c_step + n, c_step, depth, onto);
      m += 3;
    }
    for (; m < rows; ++m) multiply_strip<1>(rest(), strip, c + m * c_step + n, c_step, depth, onto);
  }
}

// One head of one batch entry of a [B, S, H, E] view: a matrix [S, E].
struct HeadView {
  const Tensor& view;
  std::int64_t first;

  HeadView(const Tensor& t, std::int64_t batch, std::int64_t head)
      : view(t), first(batch * t.stride[0] + head * t.stride[2]) {}
  std::int64_t features() const { return view.size[3]; }
  Row row(std::int64_t i) const { return {view, first + i * view.stride[1], view.stride[3], features()}; }

  // Rows [range) as a right side: in place if they are f32 and padded, else copied to `buffer`.
  Factor block(Range range, float* buffer) const {
    const std::int64_t step = padded(features());
    if (step == features() && range.begin < range.end && row(range.begin).in_place())
      return {read(row(range.begin), nullptr), view.stride[1]};
    for (std::int64_t i = range.begin; i < range.end; ++i) {
      float* to = buffer + (i - range.begin) * step;
      const float* from = read(row(i), to);
      if (from != to) std::copy(from, from + features(), to);
      std::fill(to + features(), to + step, 0.0f);
    }
    return {buffer, step};
  }

  // Rows [range) as columns of `out`, of `width` floats each: element (e, i) at out[e·width + i]. `buffer`
  // holds a row.
  void transpose(Range range, float* out, std::int64_t width, float* buffer) const {
    const std::int64_t n = range.end - range.begin;
    for (std::int64_t i = 0; i < n; ++i) {
      const float* from = read(row(range.begin + i), buffer);
      for (std::int64_t e = 0; e < features(); ++e) out[e * width + i] = from[e];
    }
    for (std::int64_t e = 0; e < features(); ++e) std::fill(out + e * width + n, out + (e + 1) * width, 0.0f);
  }
};

}  // namespace muster::kernels::attention
