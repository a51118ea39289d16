// The operators of reduce() on lanes of floats and of unsigned integers, compiled once per SIMD target. See
// reduce_loops.hpp.
#if defined(MUSTER_KERNELS_MATH_REDUCE_OPS_HPP) == defined(HWY_TARGET_TOGGLE)
#ifdef MUSTER_KERNELS_MATH_REDUCE_OPS_HPP
#undef MUSTER_KERNELS_MATH_REDUCE_OPS_HPP
#else
#define MUSTER_KERNELS_MATH_REDUCE_OPS_HPP
#endif

#include "kernels/math/reduce_loops.hpp"

#include <cstdint>
#include <type_traits>

HWY_BEFORE_NAMESPACE();
namespace muster::math::HWY_NAMESPACE {

template<class D>
HWY_INLINE hn::Vec<D> canonical_nan(D d, hn::Vec<D> v) {
  using Bits = hwy::MakeUnsigned<hn::TFromD<D>>;
  constexpr Bits kQuiet = sizeof(Bits) == 4 ? Bits{0x7FC00000} : static_cast<Bits>(0x7FF8000000000000);
  const hn::Vec<D> quiet = hn::BitCast(d, hn::Set(hn::RebindToUnsigned<D>(), kQuiet));
  return hn::IfThenElse(hn::IsNaN(v), quiet, v);
}

// The product; of integers its low half. No instruction set multiplies bytes: even and odd bytes go through
// 16-bit lanes.
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

// Integers wrap; a float that is written is no other NaN than the canonical one.
template<class D>
struct SumOf {
  using V = hn::Vec<D>;
  static constexpr bool kFewLoops = false;
  explicit SumOf(const Reduction& /*r*/) {}
  HWY_INLINE V prepare(V v) const { return v; }
  HWY_INLINE V combine(V a, V b) const { return hn::Add(a, b); }
  HWY_INLINE V finish(V v) const {
    if constexpr (std::is_floating_point_v<hn::TFromD<D>>)
      return canonical_nan(D(), v);
    else
      return v;
  }
};

template<class D>
struct ScaledSumOf : SumOf<D> {
  using V = hn::Vec<D>;
  static constexpr bool kFewLoops = true;
  hn::TFromD<D> scale;
  explicit ScaledSumOf(const Reduction& r) : SumOf<D>(r) {
    if constexpr (std::is_floating_point_v<hn::TFromD<D>>)
      scale = static_cast<hn::TFromD<D>>(r.scale);
    else
      scale = static_cast<hn::TFromD<D>>(whole_scale(r.scale));
  }
  HWY_INLINE V prepare(V v) const { return multiply(D(), v, hn::Set(D(), scale)); }
};

template<class D>
struct ProductOf : SumOf<D> {
  using V = hn::Vec<D>;
  static constexpr bool kFewLoops = true;
  using SumOf<D>::SumOf;
  HWY_INLINE V combine(V a, V b) const { return multiply(D(), a, b); }
};

template<class D>
struct MeanOfFloats : SumOf<D> {
  using V = hn::Vec<D>;
  hn::TFromD<D> members;
  explicit MeanOfFloats(const Reduction& r)
      : SumOf<D>(r), members(static_cast<hn::TFromD<D>>(r.source_count)) {}
  HWY_INLINE V finish(V v) const { return canonical_nan(D(), hn::Div(v, hn::Set(D(), members))); }
};

// MAX and MIN on keys: signed integers that order as the floats do, with -0 below +0 and NaN above every
// number. The hardware's own max and min treat NaN and zeros differently on each instruction set. MIN is MAX
// of the complements, which have the reverse order.
template<class D>
struct ExtremeOfFloats {
  using V = hn::Vec<D>;
  using DI = hn::RebindToSigned<D>;
  using Key = hn::TFromD<DI>;
  using VI = hn::Vec<DI>;
  static constexpr bool kFewLoops = false;
  Key complement;
  explicit ExtremeOfFloats(const Reduction& r) : complement(r.redop == MUSTER_MAX ? Key{0} : Key{-1}) {}

  // Its own inverse: flips the magnitude bits of negative numbers.
  static HWY_INLINE VI flip(VI bits) {
    const VI negative = hn::ShiftRight<8 * sizeof(Key) - 1>(bits);
    return hn::Xor(bits, hn::And(negative, hn::Set(DI(), hwy::LimitsMax<Key>())));
  }
  HWY_INLINE V prepare(V v) const {
    const VI beyond = hn::Set(DI(), hwy::LimitsMax<Key>());
    const VI key = hn::Xor(flip(hn::BitCast(DI(), v)), hn::Set(DI(), complement));
    return hn::IfThenElse(hn::IsNaN(v), hn::BitCast(D(), beyond), hn::BitCast(D(), key));
  }
  HWY_INLINE V combine(V a, V b) const {
    return hn::BitCast(D(), hn::Max(hn::BitCast(DI(), a), hn::BitCast(DI(), b)));
  }
  HWY_INLINE V finish(V v) const {
    const VI key = hn::Xor(hn::BitCast(DI(), v), hn::Set(DI(), complement));
    return canonical_nan(D(), hn::BitCast(D(), flip(key)));  // a key above all numbers becomes a NaN again
  }
};

template<class Format>
Reducer float_reducer(muster_redop redop) {
  using D = typename Format::D;
  switch (redop) {
    case MUSTER_SUM:
      return reduce_by<Format, SumOf<D>>;
    case MUSTER_AVG:
      return reduce_by<Format, MeanOfFloats<D>>;
    case MUSTER_MAX:
    case MUSTER_MIN:
      return reduce_by<Format, ExtremeOfFloats<D>>;
    case MUSTER_PROD:
      return reduce_by<Format, ProductOf<D>>;
    default:
      return reduce_by<Format, ScaledSumOf<D>>;
  }
}

}  // namespace muster::math::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
