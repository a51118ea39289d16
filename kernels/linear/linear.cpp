#include "kernels/linear/linear.hpp"

#include "kernels/check.hpp"
#include "kernels/element.hpp"
#include "kernels/linear/tiling.hpp"
#include "kernels/on_host.hpp"
#include "kernels/onednn/product.hpp"
#include "kernels/wide.hpp"

#include <muster/kernels.h>

namespace muster::kernels::linear {
namespace {

using onednn::Matrix;
using onednn::Product;

constexpr std::array<Operand, 4> kForwardOperands{
    {{"x", Operand::kRead}, {"w", Operand::kRead}, {"bias", Operand::kRead, true}, {"y", Operand::kWrite}}};
constexpr std::array<Operand, 3> kDgradOperands{
    {{"dy", Operand::kRead}, {"w", Operand::kRead}, {"dx", Operand::kReadWrite}}};
constexpr std::array<Operand, 4> kWgradOperands{{{"dy", Operand::kRead},
                                                 {"x", Operand::kRead},
                                                 {"dw", Operand::kReadWrite},
                                                 {"dbias", Operand::kReadWrite, true}}};

// Columns of dbias in a part, and columns that are summed at a time.
constexpr std::int64_t kBiasColumnsPerPart = 256;
constexpr std::int64_t kBiasColumnsAtOnce = 64;

Status expect_matrices(const Subject& s, std::initializer_list<std::size_t> operands) {
  for (const std::size_t operand : operands) MUSTER_RETURN_IF_ERROR(expect_dims(s, operand, 2));
  return {};
}

Status check_forward(const Args& args) {
  const Subject s{"linear_forward", kForwardOperands, args};
  MUSTER_RETURN_IF_ERROR(expect_dtype_in(s, 0, {MUSTER_F32, MUSTER_BF16}));
  for (const std::size_t operand : {1, 2, 3}) MUSTER_RETURN_IF_ERROR(expect_same_dtype(s, operand, 0));
  MUSTER_RETURN_IF_ERROR(expect_matrices(s, {0, 1, 3}));
  MUSTER_RETURN_IF_ERROR(expect_dims(s, 2, 1));
  MUSTER_RETURN_IF_ERROR(expect_equal_size(s, 1, 1, 0, 1));
  MUSTER_RETURN_IF_ERROR(expect_equal_size(s, 2, 0, 1, 0));
  MUSTER_RETURN_IF_ERROR(expect_equal_size(s, 3, 0, 0, 0));
  return expect_equal_size(s, 3, 1, 1, 0);
}

Tiling forward_tiling(const Args& args) {
  return Tiling::of(args.tensors[3].size[0], args.tensors[3].size[1], args.tensors[0].size[1]);
}
std::uint32_t parts_forward(const Args& args) {
  return forward_tiling(args).count();
}

// One tile of c = a·b (+ c) (+ bias).
void run_tile(const Product& whole, const Tiling& tiling, std::uint32_t tile) {
  const Range rows = tiling.rows(tile);
  const Range columns = tiling.columns(tile);
  Product p = whole;
  p.a = whole.a.block(rows, {0, whole.a.columns});
  p.b = whole.b.block({0, whole.b.rows}, columns);
  p.c = whole.c.block(rows, columns);
  if (p.bias.data != nullptr) p.bias = whole.bias.block({0, 1}, columns);
  onednn::multiply(p, onednn::bf16_path_of_this_machine());
}

void run_forward(const Args& args, std::uint32_t part) {
  Product p;
  p.a = Matrix::of(args.tensors[0]);
  p.b = Matrix::of(args.tensors[1]).transposed();
  p.c = Matrix::of(args.tensors[3]);
  const Tensor& bias = args.tensors[2];
  if (bias.present()) p.bias = {bias.data, bias.dtype, 1, bias.size[0], 0, bias.stride[0]};
  run_tile(p, forward_tiling(args), part);
}

Status check_dgrad(const Args& args) {
  const Subject s{"linear_dgrad", kDgradOperands, args};
  MUSTER_RETURN_IF_ERROR(expect_dtype_in(s, 0, {MUSTER_F32, MUSTER_BF16}));
  for (const std::size_t operand : {1, 2}) MUSTER_RETURN_IF_ERROR(expect_same_dtype(s, operand, 0));
  MUSTER_RETURN_IF_ERROR(expect_matrices(s, {0, 1, 2}));
  MUSTER_RETURN_IF_ERROR(expect_equal_size(s, 1, 0, 0, 1));
  MUSTER_RETURN_IF_ERROR(expect_equal_size(s, 2, 0, 0, 0));
  MUSTER_RETURN_IF_ERROR(expect_equal_size(s, 2, 1, 1, 1));
  return expect_int(s, 0, "accumulate", 0, 1);
}

Tiling dgrad_tiling(const Args& args) {
  return Tiling::of(args.tensors[2].size[0], args.tensors[2].size[1], args.tensors[0].size[1]);
}
std::uint32_t parts_dgrad(const Args& args) {
  return dgrad_tiling(args).count();
}

void run_dgrad(const Args& args, std::uint32_t part) {
  Product p;
  p.a = Matrix::of(args.tensors[0]);
  p.b = Matrix::of(args.tensors[1]);
  p.c = Matrix::of(args.tensors[2]);
  p.accumulate = args.ints[0] != 0;
  run_tile(p, dgrad_tiling(args), part);
}

Status check_wgrad(const Args& args) {
  const Subject s{"linear_wgrad", kWgradOperands, args};
  MUSTER_RETURN_IF_ERROR(expect_dtype_in(s, 0, {MUSTER_F32, MUSTER_BF16}));
  MUSTER_RETURN_IF_ERROR(expect_same_dtype(s, 1, 0));
  for (const std::size_t operand : {2, 3})
    if (args.tensors[operand].dtype != MUSTER_F32) MUSTER_RETURN_IF_ERROR(expect_same_dtype(s, operand, 0));
  MUSTER_RETURN_IF_ERROR(expect_matrices(s, {0, 1, 2}));
  MUSTER_RETURN_IF_ERROR(expect_dims(s, 3, 1));
  MUSTER_RETURN_IF_ERROR(expect_equal_size(s, 1, 0, 0, 0));
  MUSTER_RETURN_IF_ERROR(expect_equal_size(s, 2, 0, 0, 1));
  MUSTER_RETURN_IF_ERROR(expect_equal_size(s, 2, 1, 1, 1));
  MUSTER_RETURN_IF_ERROR(expect_equal_size(s, 3, 0, 0, 1));
  return expect_int(s, 0, "accumulate", 0, 1);
}

Tiling wgrad_tiling(const Args& args) {
  return Tiling::of(args.tensors[2].size[0], args.tensors[2].size[1], args.tensors[0].size[0]);
}
// The tiles of dw first, then the columns of dbias.
std::uint32_t parts_wgrad(const Args& args) {
  const std::uint32_t of_bias =
      args.tensors[3].present() ? parts_of(args.tensors[3].size[0], kBiasColumnsPerPart) : 0;
  return wgrad_tiling(args).count() + of_bias;
}

// Column sums in token order, in double: a sum has as many terms as the batch has tokens. Reading dy costs
// more than the arithmetic.
template<class E, class O>
void sum_columns(const Matrix& dy, O* target, std::int64_t step, bool accumulate) {
  const E* source = reinterpret_cast<const E*>(dy.data);
  for (std::int64_t first = 0; first < dy.columns; first += kBiasColumnsAtOnce) {
    const std::int64_t some = std::min(kBiasColumnsAtOnce, dy.columns - first);
    std::array<double, kBiasColumnsAtOnce> sums{};
    for (std::int64_t t = 0; t < dy.rows; ++t) {
      const E* row = source + t * dy.row_stride + first * dy.column_stride;
      if (dy.column_stride == 1)
        for (std::int64_t c = 0; c < some; ++c)
          sums[static_cast<std::size_t>(c)] += static_cast<double>(load(row + c));
      else
        for (std::int64_t c = 0; c < some; ++c)
          sums[static_cast<std::size_t>(c)] += static_cast<double>(load(row + c * dy.column_stride));
    }
    for (std::int64_t c = 0; c < some; ++c) {
      O* to = target + (first + c) * step;
      store(to, sums[static_cast<std::size_t>(c)] + (accumulate ? static_cast<double>(load(to)) : 0.0));
    }
  }
}

void run_bias(const Args& args, std::uint32_t part) {
  const Tensor& dbias = args.tensors[3];
  const Range columns = range_of(dbias.size[0], kBiasColumnsPerPart, part);
  const Matrix all = Matrix::of(args.tensors[0]);
  const Matrix dy = all.block({0, all.rows}, columns);
  dispatch_float(dy.dtype, [&]<class E>(std::type_identity<E>) {
    dispatch_float(dbias.dtype, [&]<class O>(std::type_identity<O>) {
      O* target = elements<O>(dbias) + columns.begin * dbias.stride[0];
      wide([&] { sum_columns<E>(dy, target, dbias.stride[0], args.ints[0] != 0); });
    });
  });
}

void run_wgrad(const Args& args, std::uint32_t part) {
  const Tiling tiling = wgrad_tiling(args);
  if (part >= tiling.count()) {
    run_bias(args, part - tiling.count());
    return;
  }
  Product p;
  p.a = Matrix::of(args.tensors[0]).transposed();
  p.b = Matrix::of(args.tensors[1]);
  p.c = Matrix::of(args.tensors[2]);
  p.accumulate = args.ints[0] != 0;
  run_tile(p, tiling, part);
}

}  // namespace

std::span<const Kernel> rows() {
  static constexpr std::array<Kernel, 3> kRows{{
      {MUSTER_KERNEL_LINEAR_FORWARD, "linear_forward", kForwardOperands, 0, 0, check_forward, parts_forward,
       launchers(on_host<run_forward>)},
      {MUSTER_KERNEL_LINEAR_DGRAD, "linear_dgrad", kDgradOperands, 1, 0, check_dgrad, parts_dgrad,
       launchers(on_host<run_dgrad>)},
      {MUSTER_KERNEL_LINEAR_WGRAD, "linear_wgrad", kWgradOperands, 1, 0, check_wgrad, parts_wgrad,
       launchers(on_host<run_wgrad>)},
  }};
  return kRows;
}

}  // namespace muster::kernels::linear
