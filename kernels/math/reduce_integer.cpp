// i32, i64, u8 and i8: unsigned lanes, which wrap; MAX and MIN compare the element's own type. AVG of i64 is
// in reduce.cpp.
#include "kernels/math/reduce_formats.hpp"

#include <cstdint>
#include <type_traits>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/math/reduce_integer.cpp"
#include <hwy/foreach_target.h>
//
#include "kernels/math/reduce_float_ops.hpp"

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
  static constexpr bool kFewLoops = false;
  explicit SumOfIntegers(const Reduction& /*r*/) {}
  HWY_INLINE V prepare(V v) const { return v; }
  HWY_INLINE V combine(V a, V b) const { return hn::Add(a, b); }
  HWY_INLINE V finish(V v) const { return v; }
};

template<class D>
struct ScaledSumOfIntegers : SumOfIntegers<D> {
  using V = hn::Vec<D>;
  static constexpr bool kFewLoops = true;
  hn::TFromD<D> scale;
  explicit ScaledSumOfIntegers(const Reduction& r)
      : SumOfIntegers<D>(r), scale(static_cast<hn::TFromD<D>>(whole_scale(r.scale))) {}
  HWY_INLINE V prepare(V v) const { return multiply(D(), v, hn::Set(D(), scale)); }
};

template<class D>
struct ProductOfIntegers : SumOfIntegers<D> {
  using V = hn::Vec<D>;
  static constexpr bool kFewLoops = true;
  using SumOfIntegers<D>::SumOfIntegers;
  HWY_INLINE V combine(V a, V b) const { return multiply(D(), a, b); }
};

// Value is the element's own type: signed or not.
template<class D, class Value, bool kMaximum>
struct ExtremeOfIntegers : SumOfIntegers<D> {
  using V = hn::Vec<D>;
  using SumOfIntegers<D>::SumOfIntegers;
  HWY_INLINE V combine(V a, V b) const {
    const hn::Rebind<Value, D> dv;
    if constexpr (kMaximum)
      return hn::BitCast(D(), hn::Max(hn::BitCast(dv, a), hn::BitCast(dv, b)));
    else
      return hn::BitCast(D(), hn::Min(hn::BitCast(dv, a), hn::BitCast(dv, b)));
  }
};

// For AVG: lanes that hold every sum of kReduceSourcesMax elements exactly. The rounded quotient truncates to
// the same integer as the true one. A quotient that is no integer is at least 1/4096 short of the next, and
// rounding moves it by at most 2^-17 (bytes: below 2^8 in f32) or 2^-22 (i32: up to 2^31 in f64).
template<class Value>
struct MeanFormat {
  using Lane = float;
  using D = hn::ScalableTag<float>;
  using Elements = hn::Rebind<Value, D>;
  using Integers = hn::RebindToSigned<D>;
  static HWY_INLINE hn::Vec<D> widen(hn::Vec<Elements> v) {
    return hn::ConvertTo(D(), hn::PromoteTo(Integers(), v));
  }
  static HWY_INLINE hn::Vec<Elements> narrow(hn::Vec<D> v) {
    return hn::DemoteTo(Elements(), hn::ConvertTo(Integers(), v));
  }
};
template<>
struct MeanFormat<std::int32_t> {
  using Lane = double;
  using D = hn::ScalableTag<double>;
  using Elements = hn::Rebind<std::int32_t, D>;
  static HWY_INLINE hn::Vec<D> widen(hn::Vec<Elements> v) { return hn::PromoteTo(D(), v); }
  // Truncate before the conversion: one target takes a value less than one above the largest i32 for an
  // overflow.
  static HWY_INLINE hn::Vec<Elements> narrow(hn::Vec<D> v) { return hn::DemoteTo(Elements(), hn::Trunc(v)); }
};

// Signed and unsigned integers share the loops of all but MAX, MIN and AVG.
template<class Value>
Reducer integer_reducer(muster_redop redop) {
  using Format = PlainFormat<std::make_unsigned_t<Value>>;
  using D = typename Format::D;
  switch (redop) {
    case MUSTER_SUM:
      return reduce_by<Format, SumOfIntegers<D>>;
    case MUSTER_MAX:
      return reduce_by<Format, ExtremeOfIntegers<D, Value, true>>;
    case MUSTER_MIN:
      return reduce_by<Format, ExtremeOfIntegers<D, Value, false>>;
    case MUSTER_PROD:
      return reduce_by<Format, ProductOfIntegers<D>>;
    case MUSTER_AVG:
      if constexpr (sizeof(Value) < sizeof(std::int64_t))
        return reduce_by<MeanFormat<Value>, MeanOfFloats<typename MeanFormat<Value>::D>>;
      [[fallthrough]];  // of i64 it is plain code: reduce.cpp
    default:
      return reduce_by<Format, ScaledSumOfIntegers<D>>;
  }
}

Reducer integers32(muster_redop redop) {
  return integer_reducer<std::int32_t>(redop);
}
Reducer integers64(muster_redop redop) {
  return integer_reducer<std::int64_t>(redop);
}
Reducer bytes8(muster_redop redop) {
  return integer_reducer<std::uint8_t>(redop);
}
Reducer signed_bytes8(muster_redop redop) {
  return integer_reducer<std::int8_t>(redop);
}

}  // namespace muster::math::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace muster::math {

HWY_EXPORT(integers32);
HWY_EXPORT(integers64);
HWY_EXPORT(bytes8);
HWY_EXPORT(signed_bytes8);

Reducer reducer_i32(muster_redop redop) {
  return HWY_DYNAMIC_DISPATCH(integers32)(redop);
}
Reducer reducer_i64(muster_redop redop) {
  return HWY_DYNAMIC_DISPATCH(integers64)(redop);
}
Reducer reducer_u8(muster_redop redop) {
  return HWY_DYNAMIC_DISPATCH(bytes8)(redop);
}
Reducer reducer_i8(muster_redop redop) {
  return HWY_DYNAMIC_DISPATCH(signed_bytes8)(redop);
}

}  // namespace muster::math
#endif  // HWY_ONCE
