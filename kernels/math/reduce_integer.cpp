// i32, i64, u8 and i8: unsigned lanes, which wrap; MAX and MIN compare the element's own type. AVG of i64 is
// in reduce.cpp.
#include "kernels/math/reduce_formats.hpp"

#include <cstdint>
#include <type_traits>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/math/reduce_integer.cpp"
#include <hwy/foreach_target.h>
//
#include "kernels/math/reduce_ops.hpp"

HWY_BEFORE_NAMESPACE();
namespace muster::math::HWY_NAMESPACE {

// Value is the element's own type: signed or not.
template<class D, class Value, bool kMaximum>
struct ExtremeOfIntegers : SumOf<D> {
  using V = hn::Vec<D>;
  using SumOf<D>::SumOf;
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
      return reduce_by<Format, SumOf<D>>;
    case MUSTER_MAX:
      return reduce_by<Format, ExtremeOfIntegers<D, Value, true>>;
    case MUSTER_MIN:
      return reduce_by<Format, ExtremeOfIntegers<D, Value, false>>;
    case MUSTER_PROD:
      return reduce_by<Format, ProductOf<D>>;
    case MUSTER_AVG:
      if constexpr (sizeof(Value) < sizeof(std::int64_t))
        return reduce_by<MeanFormat<Value>, MeanOfFloats<typename MeanFormat<Value>::D>>;
      [[fallthrough]];  // of i64 it is plain code: reduce.cpp
    default:
      return reduce_by<Format, ScaledSumOf<D>>;
  }
}

Reducer integer_loops(muster_dtype dtype, muster_redop redop) {
  switch (dtype) {
    case MUSTER_I32:
      return integer_reducer<std::int32_t>(redop);
    case MUSTER_I64:
      return integer_reducer<std::int64_t>(redop);
    case MUSTER_U8:
      return integer_reducer<std::uint8_t>(redop);
    default:
      return integer_reducer<std::int8_t>(redop);
  }
}

}  // namespace muster::math::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace muster::math {

HWY_EXPORT(integer_loops);

Reducer reducer_integer(muster_dtype dtype, muster_redop redop) {
  return HWY_DYNAMIC_DISPATCH(integer_loops)(dtype, redop);
}

}  // namespace muster::math
#endif  // HWY_ONCE
