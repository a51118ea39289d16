#include "kernels/onednn/product.hpp"

#include "kernels/onednn/native_bf16.hpp"
#include "kernels/onednn/this_thread.hpp"
#include "kernels/row.hpp"
#include "kernels/wide.hpp"

#include "api/base/assert.hpp"

#include <cstring>

#include <dnnl.h>

namespace muster::kernels::onednn {
namespace {

// Terms that are packed at a time: two blocks of 256 rows take 2 MiB.
constexpr std::int64_t kPackedTerms = 1024;
// Packed elements at a time, both blocks together.
constexpr std::int64_t kPackedElements = 1024 * 1024;

struct PackedLeft;
struct PackedRight;
struct RoundedTile;

// An operand in the form that sgemm takes.
struct Operand32 {
  const float* data;
  char transposed;  // 'N' or 'T'
  std::int64_t leading;
};

// A stride along a dim of one element is never used and may be anything.
bool steps_by_one(std::int64_t size, std::int64_t stride) {
  return size <= 1 || stride == 1;
}
bool leads(std::int64_t size, std::int64_t stride, std::int64_t inner) {
  return size <= 1 || stride >= inner;
}

bool is_row_major(const Matrix& m) {
  return steps_by_one(m.columns, m.column_stride) && leads(m.rows, m.row_stride, m.columns);
}
bool fits_sgemm(const Matrix& m) {
  return m.dtype == MUSTER_F32 && (is_row_major(m) || is_row_major(m.transposed()));
}
std::int64_t leading_of(const Matrix& m) {
  return m.rows <= 1 ? std::max<std::int64_t>(m.columns, 1) : m.row_stride;
}

Operand32 as_is(const Matrix& m) {
  const auto* data = reinterpret_cast<const float*>(m.data);
  if (is_row_major(m)) return {data, 'N', leading_of(m)};
  return {data, 'T', leading_of(m.transposed())};
}

// Copies m to dense rows of f32.
void pack_rows(const Matrix& m, float* target) {
  dispatch_float(m.dtype, [&]<class E>(std::type_identity<E>) {
    const E* source = reinterpret_cast<const E*>(m.data);
    wide([&] {
      for (std::int64_t r = 0; r < m.rows; ++r) {
        const E* from = source + r * m.row_stride;
        float* to = target + r * m.columns;
        if (m.column_stride == 1)
          for (std::int64_t c = 0; c < m.columns; ++c) to[c] = load(from + c);
        else
          for (std::int64_t c = 0; c < m.columns; ++c) to[c] = load(from + c * m.column_stride);
      }
    });
  });
}

// Packs along whichever dim lies side by side in memory, so that reading is sequential.
Operand32 packed(const Matrix& m, float* target) {
  if (m.row_stride == 1 && m.column_stride != 1) {
    pack_rows(m.transposed(), target);
    return {target, 'T', std::max<std::int64_t>(m.rows, 1)};
  }
  pack_rows(m, target);
  return {target, 'N', std::max<std::int64_t>(m.columns, 1)};
}

// Rounds dense rows of f32 into m.
void unpack_rows(const float* source, const Matrix& m) {
  dispatch_float(m.dtype, [&]<class E>(std::type_identity<E>) {
    E* target = reinterpret_cast<E*>(m.data);
    wide([&] {
      for (std::int64_t r = 0; r < m.rows; ++r) {
        const float* from = source + r * m.columns;
        E* to = target + r * m.row_stride;
        if (m.column_stride == 1)
          for (std::int64_t c = 0; c < m.columns; ++c) store(to + c, from[c]);
        else
          for (std::int64_t c = 0; c < m.columns; ++c) store(to + c * m.column_stride, from[c]);
      }
    });
  });
}

// Fills c before the first product: with bias, zeros, or p.c (accumulate). `c` is f32 and row-major.
void start_from(const Product& p, const Matrix& c) {
  if (p.accumulate) {
    if (c.data != p.c.data) pack_rows(p.c, reinterpret_cast<float*>(c.data));
    return;
  }
  for (std::int64_t r = 0; r < c.rows; ++r) {
    const Matrix row = c.block({r, r + 1}, {0, c.columns});
    auto* to = reinterpret_cast<float*>(row.data);
    if (p.bias.data == nullptr)
      std::fill(to, to + c.columns, 0.0f);
    else if (r == 0)
      pack_rows(p.bias, to);
    else
      std::memcpy(to, c.data, static_cast<std::size_t>(c.columns) * sizeof(float));
  }
}

// c[m,n] = a·b (beta 0) or c += a·b (beta 1), c row-major f32.
void sgemm(const Operand32& a, const Operand32& b, const Matrix& c, std::int64_t terms, float beta) {
  const dnnl_status_t status =
      dnnl_sgemm(a.transposed, b.transposed, c.rows, c.columns, terms, 1.0f, a.data, a.leading, b.data,
                 b.leading, beta, reinterpret_cast<float*>(c.data), leading_of(c));
  MUSTER_ASSERT(status == dnnl_success);
}

// c is f32 and row-major.
void multiply_into(const Product& p, const Matrix& c) {
  const std::int64_t k = p.a.columns;
  const bool starts_empty = !p.accumulate && p.bias.data == nullptr;
  if (k == 0 || !starts_empty) start_from(p, c);
  if (k == 0) return;
  float beta = starts_empty ? 0.0f : 1.0f;
  const bool a_fits = fits_sgemm(p.a);
  const bool b_fits = fits_sgemm(p.b);
  if (a_fits && b_fits) {
    sgemm(as_is(p.a), as_is(p.b), c, k, beta);
    return;
  }
  const std::int64_t terms =
      std::clamp<std::int64_t>(kPackedElements / (c.rows + c.columns), 16, kPackedTerms);
  for (std::int64_t begin = 0; begin < k; begin += terms) {
    const Range along{begin, std::min(k, begin + terms)};
    const std::int64_t some = along.end - along.begin;
    const Matrix a = p.a.block({0, p.a.rows}, along);
    const Matrix b = p.b.block(along, {0, p.b.columns});
    const Operand32 left = a_fits ? as_is(a) : packed(a, scratch<PackedLeft>(a.rows * some));
    const Operand32 right = b_fits ? as_is(b) : packed(b, scratch<PackedRight>(b.columns * some));
    sgemm(left, right, c, some, beta);
    beta = 1.0f;
  }
}

}  // namespace

Bf16Path bf16_path_of_this_machine() {
  static const Bf16Path path = native_bf16_is_fast() ? Bf16Path::kNative : Bf16Path::kConvert;
  return path;
}

void multiply(const Product& p, Bf16Path bf16_path) {
  if (p.c.rows == 0 || p.c.columns == 0) return;
  stay_on_this_thread();
  if (p.a.dtype == MUSTER_BF16 && bf16_path == Bf16Path::kNative && p.a.columns > 0 &&
      multiply_native_bf16(p))
    return;
  if (p.c.dtype == MUSTER_F32 && is_row_major(p.c)) {
    multiply_into(p, p.c);
    return;
  }
  float* const tile = scratch<RoundedTile>(p.c.rows * p.c.columns);
  multiply_into(p, {reinterpret_cast<std::byte*>(tile), MUSTER_F32, p.c.rows, p.c.columns, p.c.columns, 1});
  unpack_rows(tile, p.c);
}

}  // namespace muster::kernels::onednn
