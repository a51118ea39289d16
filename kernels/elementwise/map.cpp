#include "kernels/elementwise/map.hpp"

#include "kernels/check.hpp"
#include "kernels/element.hpp"
#include "kernels/wide.hpp"

#include <cmath>
#include <cstring>
#include <limits>

namespace muster::kernels::elementwise {
namespace {

// 1 MiB of f32 traffic: about 100 µs of memory time on one core.
constexpr std::int64_t kElementsPerPart = 128 * 1024;

// 8-bit floats are moved and filled, but not converted, because a conversion needs scales.
bool is_convertible(muster_dtype dtype) {
  return dtype == MUSTER_F32 || dtype == MUSTER_BF16 || dtype == MUSTER_F16 || dtype == MUSTER_F64;
}

template<class S, class T>
void convert_run(const S* source, std::int64_t source_step, T* target, std::int64_t target_step,
                 std::int64_t n) {
  const auto put = [](const S* s, T* t) {
    if constexpr (std::is_same_v<S, T>)
      *t = *s;
    else
      store(t, load(s));
  };
  if (source_step == 1 && target_step == 1) {  // a loop of its own, so that it vectorises
    for (std::int64_t i = 0; i < n; ++i) put(source + i, target + i);
    return;
  }
  for (std::int64_t i = 0; i < n; ++i) put(source + i * source_step, target + i * target_step);
}

template<class S, class T>
void copy_range(const Walk<2>& walk, const Args& args, Range range) {
  const S* source = elements<S>(args.tensors[0]);
  T* target = elements<T>(args.tensors[1]);
  if constexpr (std::is_same_v<S, T>) {
    if (walk.unit_step()) {
      walk.over(range.begin, range.end, [&](const auto& at, std::int64_t n) {
        if (target + at[1] == source + at[0]) return;  // a view onto itself (check_apart)
        std::memcpy(target + at[1], source + at[0], static_cast<std::size_t>(n) * sizeof(T));
      });
      return;
    }
  }
  wide([&] {
    walk.over(range.begin, range.end, [&](const auto& at, std::int64_t n) {
      convert_run(source + at[0], walk.step()[0], target + at[1], walk.step()[1], n);
    });
  });
}

template<class E>
bool holds(double value) {
  if constexpr (std::is_integral_v<E>) {
    // 2^63 itself is no int64, and every double below it is.
    constexpr auto kHalf = std::numeric_limits<E>::max() / 2 + 1;
    constexpr double kAbove = static_cast<double>(kHalf) * 2.0;
    return value == std::trunc(value) && value >= static_cast<double>(std::numeric_limits<E>::min()) &&
           value < kAbove;
  }
  return true;
}

template<class X, class Y>
void axpby_range(const Walk<2>& walk, const Args& args, Range range) {
  const X* x = elements<X>(args.tensors[0]);
  Y* y = elements<Y>(args.tensors[1]);
  const float a = static_cast<float>(args.reals[0]);
  const float b = static_cast<float>(args.reals[1]);
  const std::int64_t xs = walk.step()[0];
  const std::int64_t ys = walk.step()[1];
  const bool unit = walk.unit_step();
  wide([&] {
    walk.over(range.begin, range.end, [&](const auto& at, std::int64_t n) {
      const X* from = x + at[0];
      Y* to = y + at[1];
      if (b == 0.0f) {  // y is not read, because it may hold a NaN
        for (std::int64_t i = 0; i < n; ++i) store(to + i * ys, a * load(from + i * xs));
      } else if (unit) {
        for (std::int64_t i = 0; i < n; ++i) store(to + i, a * load(from + i) + b * load(to + i));
      } else {
        for (std::int64_t i = 0; i < n; ++i)
          store(to + i * ys, a * load(from + i * xs) + b * load(to + i * ys));
      }
    });
  });
}

}  // namespace

Status check_copy(const Args& args) {
  const Subject s{"copy", kCopyOperands, args};
  if (is_convertible(args.tensors[0].dtype))
    MUSTER_RETURN_IF_ERROR(expect_dtype_in(s, 1, {MUSTER_F32, MUSTER_BF16, MUSTER_F16, MUSTER_F64}));
  else
    MUSTER_RETURN_IF_ERROR(expect_same_dtype(s, 1, 0));
  return expect_same_shape(s, 1, 0);
}

std::uint32_t parts_copy(const Args& args) {
  return parts_of(args.tensors[1].count(), kElementsPerPart);
}

void run_copy(const Args& args, std::uint32_t part) {
  const Walk<2> walk({&args.tensors[0], &args.tensors[1]});
  const Range range = range_of(walk.count(), kElementsPerPart, part);
  if (args.tensors[0].dtype == args.tensors[1].dtype) {
    dispatch_any(args.tensors[0].dtype,
                 [&]<class E>(std::type_identity<E>) { copy_range<E, E>(walk, args, range); });
    return;
  }
  dispatch_any_float(args.tensors[0].dtype, [&]<class S>(std::type_identity<S>) {
    dispatch_any_float(args.tensors[1].dtype,
                       [&]<class T>(std::type_identity<T>) { copy_range<S, T>(walk, args, range); });
  });
}

Status check_fill(const Args& args) {
  const double value = args.reals[0];
  bool fits = false;
  dispatch_any(args.tensors[0].dtype, [&]<class E>(std::type_identity<E>) { fits = holds<E>(value); });
  if (fits) return {};
  return failure(Code::kBadArgument,
                 "fill: value is {}, which is no {} of target; give a whole number in its range", value,
                 dtype_text(args.tensors[0].dtype));
}

std::uint32_t parts_fill(const Args& args) {
  return parts_of(args.tensors[0].count(), kElementsPerPart);
}

void run_fill(const Args& args, std::uint32_t part) {
  const Walk<1> walk({&args.tensors[0]});
  const Range range = range_of(walk.count(), kElementsPerPart, part);
  dispatch_any(args.tensors[0].dtype, [&]<class E>(std::type_identity<E>) {
    E value{};
    if constexpr (std::is_integral_v<E>)
      value = static_cast<E>(args.reals[0]);
    else
      store(&value, args.reals[0]);
    E* target = elements<E>(args.tensors[0]);
    const std::int64_t step = walk.step()[0];
    walk.over(range.begin, range.end, [&](const auto& at, std::int64_t n) {
      E* to = target + at[0];
      if (step == 1)
        std::fill(to, to + n, value);
      else
        for (std::int64_t i = 0; i < n; ++i) to[i * step] = value;
    });
  });
}

Status check_axpby(const Args& args) {
  const Subject s{"axpby", kAxpbyOperands, args};
  MUSTER_RETURN_IF_ERROR(expect_dtype_in(s, 0, {MUSTER_F32, MUSTER_BF16, MUSTER_F16}));
  MUSTER_RETURN_IF_ERROR(expect_dtype_in(s, 1, {MUSTER_F32, MUSTER_BF16, MUSTER_F16}));
  return expect_same_shape(s, 1, 0);
}

std::uint32_t parts_axpby(const Args& args) {
  return parts_of(args.tensors[1].count(), kElementsPerPart);
}

void run_axpby(const Args& args, std::uint32_t part) {
  const Walk<2> walk({&args.tensors[0], &args.tensors[1]});
  const Range range = range_of(walk.count(), kElementsPerPart, part);
  dispatch<float, Bf16, F16>(args.tensors[0].dtype, [&]<class X>(std::type_identity<X>) {
    dispatch<float, Bf16, F16>(args.tensors[1].dtype,
                               [&]<class Y>(std::type_identity<Y>) { axpby_range<X, Y>(walk, args, range); });
  });
}

}  // namespace muster::kernels::elementwise
