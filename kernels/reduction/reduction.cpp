#include "kernels/reduction/reduction.hpp"

#include "kernels/check.hpp"
#include "kernels/element.hpp"
#include "kernels/on_host.hpp"
#include "kernels/row.hpp"

#include <muster/field_kernels.h>

#include <array>
#include <vector>

namespace muster::kernels::reduction {
namespace {

constexpr std::array<Operand, 2> kSumOperands{{{"x", Operand::kRead}, {"sums", Operand::kReadWrite}}};
constexpr std::array<Operand, 2> kSpreadOperands{{{"x", Operand::kRead}, {"y", Operand::kReadWrite}}};

constexpr std::array<Operand, 3> kProductOperands{
    {{"x", Operand::kRead}, {"w", Operand::kRead}, {"y", Operand::kReadWrite}}};

constexpr std::int64_t kElementsPerPart = 1 << 16;

// Some dims of two views, visited in row-major order.
struct DimList {
  std::size_t count = 0;
  std::array<std::int64_t, MUSTER_TENSOR_DIMS_MAX> size{}, wide_stride{}, narrow_stride{};

  void add(std::int64_t n, std::int64_t wide, std::int64_t narrow) {
    size[count] = n;
    wide_stride[count] = wide;
    narrow_stride[count++] = narrow;
  }
  std::int64_t elements() const {
    std::int64_t all = 1;
    for (std::size_t d = 0; d < count; ++d) all *= size[d];
    return all;
  }
  // Where element `index` of these dims is, in both views.
  std::array<std::int64_t, 2> at(std::int64_t index) const {
    std::array<std::int64_t, 2> places{0, 0};
    for (std::size_t d = count; d-- > 0; index /= size[d]) {
      places[0] += index % size[d] * wide_stride[d];
      places[1] += index % size[d] * narrow_stride[d];
    }
    return places;
  }
};

// The dims of a wide view and of a narrow one, which has size 1 where it has lost a dim. The last dim apart,
// if both have it: a run.
struct Dims {
  DimList kept, lost;
  std::int64_t run = 1, wide_step = 1, narrow_step = 1;

  Dims(const Tensor& wide, const Tensor& narrow) {
    for (std::int32_t d = 0; d < wide.dims; ++d) {
      const auto i = static_cast<std::size_t>(d);
      if (narrow.size[i] == 1 && wide.size[i] != 1) {
        lost.add(wide.size[i], wide.stride[i], 0);
      } else if (d == wide.dims - 1) {
        run = wide.size[i];
        wide_step = wide.stride[i];
        narrow_step = narrow.stride[i];
      } else {
        kept.add(wide.size[i], wide.stride[i], narrow.stride[i]);
      }
    }
  }
  std::int64_t kept_per_part() const {
    return std::max<std::int64_t>(1, kElementsPerPart / std::max<std::int64_t>(1, lost.elements() * run));
  }
  std::uint32_t parts() const { return parts_of(kept.elements(), kept_per_part()); }
};

// ---- checks ------------------------------------------------------------------------------------

Status check_sizes(const Subject& s, std::size_t wide, std::size_t narrow) {
  MUSTER_RETURN_IF_ERROR(expect_size_in(s, wide, -1, 0, kRowElementsMax));
  MUSTER_RETURN_IF_ERROR(expect_dims(s, narrow, s.tensor(wide).dims));
  for (std::int32_t d = 0; d < s.tensor(wide).dims; ++d)
    if (s.tensor(narrow).size[static_cast<std::size_t>(d)] != 1)
      MUSTER_RETURN_IF_ERROR(expect_equal_size(s, narrow, d, wide, d));
  return {};
}

Status check_numbers(const Subject& s) {
  MUSTER_RETURN_IF_ERROR(expect_finite(s, 0, "scale"));
  return expect_int(s, 0, "accumulate", 0, 1);
}

Status check_dims(const Subject& s, std::size_t wide, std::size_t narrow) {
  MUSTER_RETURN_IF_ERROR(check_sizes(s, wide, narrow));
  return check_numbers(s);
}

Status check_sum(const Args& args) {
  const Subject s{"sum_over", kSumOperands, args};
  MUSTER_RETURN_IF_ERROR(expect_dtype_in(s, 0, {MUSTER_F32, MUSTER_BF16, MUSTER_F64}));
  MUSTER_RETURN_IF_ERROR(expect_dtype_in(s, 1, {MUSTER_F32, MUSTER_F64}));
  if (args.tensors[0].dims == 0)
    return failure(Code::kBadArgument, "sum_over: x is a scalar; it has no dim to sum over");
  return check_dims(s, 0, 1);
}

Status check_spread(const Args& args) {
  const Subject s{"spread", kSpreadOperands, args};
  MUSTER_RETURN_IF_ERROR(expect_dtype_in(s, 0, {MUSTER_F32, MUSTER_BF16, MUSTER_F64}));
  MUSTER_RETURN_IF_ERROR(expect_dtype_in(s, 1, {MUSTER_F32, MUSTER_BF16}));
  if (args.tensors[1].dims == 0)
    return failure(Code::kBadArgument, "spread: y is a scalar; it has no dim to spread over");
  return check_dims(s, 1, 0);
}

Status check_product(const Args& args) {
  const Subject s{"product", kProductOperands, args};
  for (const std::size_t read : {std::size_t{0}, std::size_t{1}})
    MUSTER_RETURN_IF_ERROR(expect_dtype_in(s, read, {MUSTER_F32, MUSTER_BF16, MUSTER_F64}));
  MUSTER_RETURN_IF_ERROR(expect_dtype_in(s, 2, {MUSTER_F32, MUSTER_BF16}));
  if (args.tensors[2].dims == 0) return failure(Code::kBadArgument, "product: y is a scalar; it needs a dim");
  MUSTER_RETURN_IF_ERROR(check_sizes(s, 2, 1));
  MUSTER_RETURN_IF_ERROR(expect_dims(s, 0, args.tensors[2].dims));
  for (std::int32_t d = 0; d < args.tensors[2].dims; ++d)
    MUSTER_RETURN_IF_ERROR(expect_equal_size(s, 0, d, 2, d));
  return check_numbers(s);
}

// ---- parts -------------------------------------------------------------------------------------

std::uint32_t parts_sum(const Args& args) {
  return Dims(args.tensors[0], args.tensors[1]).parts();
}

// The sum of `count` elements: of eight sums, each of every eighth element.
template<class E>
double sum_of(const E* source, std::int64_t count, std::int64_t step) {
  constexpr std::int64_t kSums = 8;
  std::array<double, kSums> sums{};
  std::int64_t i = 0;
  for (; step == 1 && i + kSums <= count; i += kSums)
    for (std::int64_t s = 0; s < kSums; ++s)
      sums[static_cast<std::size_t>(s)] += static_cast<double>(load(source + i + s));
  for (; i < count; ++i)
    sums[static_cast<std::size_t>(i % kSums)] += static_cast<double>(load(source + i * step));
  double all = 0;
  for (const double sum : sums) all += sum;
  return all;
}

void run_sum(const Args& args, std::uint32_t part) {
  const Tensor& x = args.tensors[0];
  const Tensor& out = args.tensors[1];
  const Dims dims(x, out);
  const Range range = range_of(dims.kept.elements(), dims.kept_per_part(), part);
  // Where no dim remains beside them, the last of these dims is summed at once.
  DimList lost = dims.lost;
  std::int64_t at_once = 1, step = 0;
  const bool is_run = lost.count > 0 && dims.run == 1;
  if (is_run) {
    at_once = lost.size[--lost.count];
    step = lost.wide_stride[lost.count];
  }
  const std::int64_t terms = lost.elements();
  thread_local std::vector<double> sums;
  sums.resize(static_cast<std::size_t>(dims.run));
  dispatch<float, Bf16, double>(x.dtype, [&]<class E>(std::type_identity<E>) {
    dispatch<float, double>(out.dtype, [&]<class O>(std::type_identity<O>) {
      for (std::int64_t kept = range.begin; kept < range.end; ++kept) {
        const auto [from, to] = dims.kept.at(kept);
        std::fill(sums.begin(), sums.end(), 0.0);
        for (std::int64_t term = 0; term < terms; ++term) {
          const E* const source = elements<E>(x) + from + lost.at(term)[0];
          if (is_run) {
            sums[0] += sum_of(source, at_once, step);
            continue;
          }
          for (std::int64_t i = 0; i < dims.run; ++i)
            sums[static_cast<std::size_t>(i)] += static_cast<double>(load(source + i * dims.wide_step));
        }
        O* const target = elements<O>(out) + to;
        for (std::int64_t i = 0; i < dims.run; ++i) {
          O* const element = target + i * dims.narrow_step;
          const double before = args.ints[0] != 0 ? static_cast<double>(*element) : 0.0;
          *element = static_cast<O>(before + args.reals[0] * sums[static_cast<std::size_t>(i)]);
        }
      }
    });
  });
}

std::uint32_t parts_spread(const Args& args) {
  return Dims(args.tensors[1], args.tensors[0]).parts();
}

void run_spread(const Args& args, std::uint32_t part) {
  const Tensor& x = args.tensors[0];
  const Tensor& out = args.tensors[1];
  const Dims dims(out, x);
  const Range range = range_of(dims.kept.elements(), dims.kept_per_part(), part);
  const std::int64_t copies = dims.lost.elements();
  dispatch<float, Bf16, double>(x.dtype, [&]<class E>(std::type_identity<E>) {
    dispatch_float(out.dtype, [&]<class O>(std::type_identity<O>) {
      for (std::int64_t kept = range.begin; kept < range.end; ++kept) {
        const auto [to, from] = dims.kept.at(kept);
        for (std::int64_t copy = 0; copy < copies; ++copy) {
          O* const target = elements<O>(out) + to + dims.lost.at(copy)[0];
          for (std::int64_t i = 0; i < dims.run; ++i) {
            O* const element = target + i * dims.wide_step;
            const double value =
                args.reals[0] * static_cast<double>(load(elements<E>(x) + from + i * dims.narrow_step));
            store(element, value + (args.ints[0] != 0 ? static_cast<double>(load(element)) : 0.0));
          }
        }
      }
    });
  });
}

// Rows of y, which are all its dims but the last.
std::int64_t rows_of(const Tensor& y) {
  std::int64_t rows = 1;
  for (std::int32_t d = 0; d + 1 < y.dims; ++d) rows *= y.size[static_cast<std::size_t>(d)];
  return rows;
}
std::int64_t rows_per_part(const Tensor& y) {
  const std::int64_t run = y.size[static_cast<std::size_t>(y.dims - 1)];
  return std::max<std::int64_t>(1, kElementsPerPart / std::max<std::int64_t>(1, run));
}
std::int64_t step_of(const Tensor& view, std::size_t d) {
  return view.size[d] == 1 ? 0 : view.stride[d];
}
// Where row `index` of y lies in a view that may be spread over some of its dims.
std::int64_t row_in(const Tensor& view, const Tensor& y, std::int64_t index) {
  std::int64_t at = 0;
  for (auto d = static_cast<std::size_t>(y.dims - 1); d-- > 0; index /= y.size[d])
    at += index % y.size[d] * step_of(view, d);
  return at;
}

std::uint32_t parts_product(const Args& args) {
  return parts_of(rows_of(args.tensors[2]), rows_per_part(args.tensors[2]));
}

void run_product(const Args& args, std::uint32_t part) {
  const Tensor& x = args.tensors[0];
  const Tensor& w = args.tensors[1];
  const Tensor& y = args.tensors[2];
  const Range range = range_of(rows_of(y), rows_per_part(y), part);
  const auto last = static_cast<std::size_t>(y.dims - 1);
  const std::int64_t run = y.size[last], x_step = x.stride[last], w_step = step_of(w, last),
                     y_step = y.stride[last];
  dispatch<float, Bf16, double>(x.dtype, [&]<class E>(std::type_identity<E>) {
    dispatch<float, Bf16, double>(w.dtype, [&]<class W>(std::type_identity<W>) {
      dispatch_float(y.dtype, [&]<class O>(std::type_identity<O>) {
        for (std::int64_t row = range.begin; row < range.end; ++row) {
          const E* const from = elements<E>(x) + row_in(x, y, row);
          const W* const weights = elements<W>(w) + row_in(w, y, row);
          O* const to = elements<O>(y) + row_in(y, y, row);
          for (std::int64_t i = 0; i < run; ++i) {
            const double value = args.reals[0] * static_cast<double>(load(from + i * x_step)) *
                                 static_cast<double>(load(weights + i * w_step));
            O* const element = to + i * y_step;
            store(element, value + (args.ints[0] != 0 ? static_cast<double>(load(element)) : 0.0));
          }
        }
      });
    });
  });
}

}  // namespace

std::span<const Kernel> rows() {
  static constexpr std::array<Kernel, 3> kRows{{
      {MUSTER_KERNEL_SUM_OVER, "sum_over", kSumOperands, 1, 1, check_sum, parts_sum,
       launchers(on_host<run_sum>)},
      {MUSTER_KERNEL_SPREAD, "spread", kSpreadOperands, 1, 1, check_spread, parts_spread,
       launchers(on_host<run_spread>)},
      {MUSTER_KERNEL_PRODUCT, "product", kProductOperands, 1, 1, check_product, parts_product,
       launchers(on_host<run_product>)},
  }};
  return kRows;
}

}  // namespace muster::kernels::reduction
