#include "kernels/elementwise/reduce.hpp"

#include "api/base/assert.hpp"
#include "kernels/check.hpp"
#include "kernels/element.hpp"
#include "kernels/wide.hpp"

#include <cmath>

namespace muster::kernels::elementwise {
namespace {

// The i-th element in row-major order goes to lane i % kLanes, and the lanes are added pairwise at the end.
// This order vectorises, and does not depend on strides or on the machine's vector width.
constexpr std::int64_t kLanes = 16;
// Elements that do not lie side by side are gathered into a block of this many first.
constexpr std::int64_t kBlock = 64 * kLanes;

// The terms of the sums.
constexpr double value_itself(double value) {
  return value;
}
constexpr double square(double value) {
  return value * value;
}
constexpr double is_zero(double value) {
  return value == 0.0 ? 1.0 : 0.0;
}

// 1 MiB of f64: about 100 µs of memory time on one core. A multiple of kLanes, so that the first of each part
// is in the first lane.
constexpr std::int64_t kElementsPerPart = 128 * 1024;

// Owns    the lanes and the gathered block. Thread  one.
// Bound   kBlock elements.  Fails  never.
template<class V, double (*kTerm)(double)>
class LaneSum {
 public:
  // Adds `n` elements, `step` apart.
  template<class E>
  void add(const E* p, std::int64_t step, std::int64_t n) {
    while (n > 0) {
      if constexpr (std::is_same_v<E, V>) {
        if (step == 1 && filled_ == 0 && n >= kLanes) {
          const std::int64_t whole = n - n % kLanes;
          add_whole(p, whole);
          p += whole;
          n -= whole;
          continue;
        }
      }
      const std::int64_t taken = std::min(n, kBlock - filled_);
      for (std::int64_t i = 0; i < taken; ++i)
        block_[static_cast<std::size_t>(filled_ + i)] = load(p + i * step);
      filled_ += taken;
      p += taken * step;
      n -= taken;
      if (filled_ == kBlock || filled_ % kLanes == 0) flush();
    }
  }

  double total() {
    while (filled_ % kLanes != 0) block_[static_cast<std::size_t>(filled_++)] = kNothing;
    flush();
    for (std::int64_t width = kLanes / 2; width > 0; width /= 2)
      for (std::int64_t i = 0; i < width; ++i)
        lanes_[static_cast<std::size_t>(i)] += lanes_[static_cast<std::size_t>(i + width)];
    return lanes_[0];
  }

 private:
  static constexpr V kNothing = kTerm(0.0) == 0.0 ? V{0} : V{1};  // its term is 0

  void flush() {
    add_whole(block_.data(), filled_);
    filled_ = 0;
  }
  // The lanes live in registers here; `n` is a multiple of kLanes.
  void add_whole(const V* p, std::int64_t n) {
    std::array<double, kLanes> lanes = lanes_;
    for (std::int64_t i = 0; i < n; i += kLanes) {
      for (std::size_t l = 0; l < kLanes; ++l)
        lanes[l] += kTerm(static_cast<double>(p[static_cast<std::size_t>(i) + l]));
    }
    lanes_ = lanes;
  }

  std::array<double, kLanes> lanes_{};
  std::array<V, kBlock> block_;
  std::int64_t filled_ = 0;
};

template<double (*kTerm)(double)>
double reduce(const Tensor& x, std::uint32_t part) {
  double total = 0.0;
  const Walk<1> walk({&x});
  const Range range = range_of(walk.count(), kElementsPerPart, part);
  dispatch_any_float(x.dtype, [&]<class E>(std::type_identity<E>) {
    using V = std::conditional_t<std::is_same_v<E, double>, double, float>;
    const E* p = elements<E>(x);
    wide([&] {
      LaneSum<V, kTerm> sum;
      walk.over(range.begin, range.end,
                [&](const auto& at, std::int64_t n) { sum.add(p + at[0], walk.step()[0], n); });
      total = sum.total();
    });
  });
  return total;
}

double load_scalar(const Tensor& t) {
  return t.dtype == MUSTER_F64 ? *elements<double>(t) : static_cast<double>(*elements<float>(t));
}

Status check_reduction(const char* kernel, const Args& args) {
  const Subject s{kernel, kSumOperands, args};
  MUSTER_RETURN_IF_ERROR(expect_dtype_in(s, 0, {MUSTER_F32, MUSTER_BF16, MUSTER_F16, MUSTER_F64}));
  MUSTER_RETURN_IF_ERROR(expect_dtype_in(s, 1, {MUSTER_F32, MUSTER_F64}));
  MUSTER_RETURN_IF_ERROR(expect_count(s, 1, 1));
  return expect_int(s, 0, "accumulate", 0, 1);
}

void finish(const Args& args, double total) {
  const Tensor& out = args.tensors[1];
  const double value = args.reals[0] * total + (args.ints[0] != 0 ? load_scalar(out) : 0.0);
  if (out.dtype == MUSTER_F64)
    *elements<double>(out) = value;
  else
    *elements<float>(out) = static_cast<float>(value);
}

// A single part writes the result; one of several leaves its sum for the fold.
void leave(const Args& args, std::uint32_t part, double total) {
  const std::uint32_t parts = parts_reduction(args);
  if (parts == 1) return finish(args, total);
  MUSTER_ASSERT(args.partials.size() == parts);
  args.partials[part] = total;
}

}  // namespace

std::uint32_t parts_reduction(const Args& args) {
  return std::max(1u, parts_of(args.tensors[0].count(), kElementsPerPart));
}

void fold_reduction(const Args& args) {
  double total = 0.0;
  for (const double partial : args.partials) total += partial;
  finish(args, total);
}

std::uint32_t one_part(const Args&) {
  return 1;
}

Status check_sum(const Args& args) {
  return check_reduction("sum", args);
}
void run_sum(const Args& args, std::uint32_t part) {
  leave(args, part, reduce<value_itself>(args.tensors[0], part));
}

Status check_sum_squares(const Args& args) {
  return check_reduction("sum_squares", args);
}
void run_sum_squares(const Args& args, std::uint32_t part) {
  leave(args, part, reduce<square>(args.tensors[0], part));
}

Status check_count_zeros(const Args& args) {
  return check_reduction("count_zeros", args);
}
void run_count_zeros(const Args& args, std::uint32_t part) {
  leave(args, part, reduce<is_zero>(args.tensors[0], part));
}

Status check_clip_coefficient(const Args& args) {
  const Subject s{"clip_coefficient", kClipOperands, args};
  MUSTER_RETURN_IF_ERROR(expect_dtype_in(s, 0, {MUSTER_F32, MUSTER_F64}));
  MUSTER_RETURN_IF_ERROR(expect_count(s, 0, 1));
  MUSTER_RETURN_IF_ERROR(expect_dtype_in(s, 1, {MUSTER_F32}));
  MUSTER_RETURN_IF_ERROR(expect_dims(s, 1, 1));
  MUSTER_RETURN_IF_ERROR(expect_size(s, 1, 0, 2));
  if (std::isnan(args.reals[0]))
    return failure(Code::kBadArgument, "clip_coefficient: max_norm is NaN; 0 or less switches clipping off");
  return {};
}

void run_clip_coefficient(const Args& args, std::uint32_t) {
  const double norm = std::sqrt(load_scalar(args.tensors[0]));
  const double max_norm = args.reals[0];
  double coefficient = 1.0;
  // A norm that is not finite must make every parameter a NaN, also with clipping off.
  if (!std::isfinite(norm))
    coefficient = std::nan("");
  else if (max_norm > 0.0)
    coefficient = std::min(1.0, max_norm / (norm + 1e-6));
  float* out = elements<float>(args.tensors[1]);
  out[0] = static_cast<float>(coefficient);
  out[args.tensors[1].stride[0]] = static_cast<float>(norm);
}

}  // namespace muster::kernels::elementwise
