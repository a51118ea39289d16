// i32, i64 and u8: unsigned lanes, which wrap; MAX and MIN see the signed value. AVG is in reduce.cpp.
#include "kernels/math/reduce_formats.hpp"

#include <type_traits>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/math/reduce_integer.cpp"
#include <hwy/foreach_target.h>
//
#include "kernels/math/reduce_loops.hpp"

HWY_BEFORE_NAMESPACE();
namespace muster::math::HWY_NAMESPACE {

// Low half of the product. No instruction set multiplies bytes: even and odd bytes go through 16-bit lanes.
template<class D>
HWY_INLINE hn::Vec<D> multiply(D d, hn::Vec<D> a, hn::Vec<D> b) {
  if constexpr (sizeof(hn::TFromD<D>) > 1) {
    return hn::Mul(a, b);
  } else {
#if HWY_TARGET == HWY_SCALAR
    return hn::Set(d, static_cast<std::uint8_t>(hn::GetLane(a) * hn::GetLane(b)));
#else
    const hn::Repartition<std::uint16_t, D> wide;
    const auto low = hn::Set(wide, std::uint16_t{0x00FF});
    const auto x = hn::BitCast(wide, a);
    const auto y = hn::BitCast(wide, b);
    const auto even = hn::And(hn::Mul(hn::And(x, low), hn::And(y, low)), low);
    const auto odd = hn::ShiftLeft<8>(hn::Mul(hn::ShiftRight<8>(x), hn::ShiftRight<8>(y)));
    return hn::BitCast(d, hn::Or(even, odd));
#endif
  }
}

template<class D>
struct SumOfIntegers {
  using V = hn::Vec<D>;
  HWY_INLINE V prepare(V v) const { return v; }
  HWY_INLINE V combine(V a, V b) const { return hn::Add(a, b); }
  HWY_INLINE V finish(V v) const { return v; }
};

template<class D>
struct ScaledSumOfIntegers : SumOfIntegers<D> {
  using V = hn::Vec<D>;
  hn::TFromD<D> scale;
  explicit ScaledSumOfIntegers(double s) : scale(static_cast<hn::TFromD<D>>(whole_scale(s))) {}
  HWY_INLINE V prepare(V v) const { return multiply(D(), v, hn::Set(D(), scale)); }
};

template<class D>
struct ProductOfIntegers : SumOfIntegers<D> {
  using V = hn::Vec<D>;
  HWY_INLINE V combine(V a, V b) const { return multiply(D(), a, b); }
};

// Value is the element's own type: signed or not.
template<class D, class Value, bool kMaximum>
struct ExtremeOfIntegers : SumOfIntegers<D> {
  using V = hn::Vec<D>;
  HWY_INLINE V combine(V a, V b) const {
    const hn::Rebind<Value, D> dv;
    const auto x = hn::BitCast(dv, a);
    const auto y = hn::BitCast(dv, b);
    if constexpr (kMaximum)
      return hn::BitCast(D(), hn::Max(x, y));
    else
      return hn::BitCast(D(), hn::Min(x, y));
  }
};

template<class Value>
void reduce_integers(const Reduction& r) {
  using Format = PlainFormat<std::make_unsigned_t<Value>>;
  using D = typename Format::D;
  switch (r.redop) {
    case MUSTER_SUM:
      return reduce_with<Format>(SumOfIntegers<D>(), r);
    case MUSTER_MAX:
      return reduce_with<Format>(ExtremeOfIntegers<D, Value, true>(), r);
    case MUSTER_MIN:
      return reduce_with<Format>(ExtremeOfIntegers<D, Value, false>(), r);
    case MUSTER_PROD:
      return reduce_with<Format>(ProductOfIntegers<D>(), r);
    default:
      return reduce_with<Format>(ScaledSumOfIntegers<D>(r.scale), r);
  }
}

void integers32(const Reduction& r) {
  reduce_integers<std::int32_t>(r);
}
void integers64(const Reduction& r) {
  reduce_integers<std::int64_t>(r);
}
void bytes8(const Reduction& r) {
  reduce_integers<std::uint8_t>(r);
}

}  // namespace muster::math::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace muster::math {

HWY_EXPORT(integers32);
HWY_EXPORT(integers64);
HWY_EXPORT(bytes8);

void reduce_i32(const Reduction& reduction) {
  HWY_DYNAMIC_DISPATCH(integers32)(reduction);
}
void reduce_i64(const Reduction& reduction) {
  HWY_DYNAMIC_DISPATCH(integers64)(reduction);
}
void reduce_u8(const Reduction& reduction) {
  HWY_DYNAMIC_DISPATCH(bytes8)(reduction);
}

}  // namespace muster::math
#endif  // HWY_ONCE
