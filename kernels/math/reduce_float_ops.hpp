// The operators of reduce() on lanes of f32 and f64, compiled once per SIMD target. See reduce_loops.hpp.
#if defined(MUSTER_KERNELS_MATH_REDUCE_FLOAT_OPS_HPP) == defined(HWY_TARGET_TOGGLE)
#ifdef MUSTER_KERNELS_MATH_REDUCE_FLOAT_OPS_HPP
#undef MUSTER_KERNELS_MATH_REDUCE_FLOAT_OPS_HPP
#else
#define MUSTER_KERNELS_MATH_REDUCE_FLOAT_OPS_HPP
#endif

#include "kernels/math/reduce_loops.hpp"

HWY_BEFORE_NAMESPACE();
namespace muster::math::HWY_NAMESPACE {

template<class D>
HWY_INLINE hn::Vec<D> canonical_nan(D d, hn::Vec<D> v) {
  using Bits = hwy::MakeUnsigned<hn::TFromD<D>>;
  constexpr Bits kQuiet = sizeof(Bits) == 4 ? Bits{0x7FC00000} : static_cast<Bits>(0x7FF8000000000000);
  const hn::Vec<D> quiet = hn::BitCast(d, hn::Set(hn::RebindToUnsigned<D>(), kQuiet));
  return hn::IfThenElse(hn::IsNaN(v), quiet, v);
}

template<class D>
struct SumOfFloats {
  using V = hn::Vec<D>;
  static constexpr bool kFewLoops = false;
  explicit SumOfFloats(const Reduction& /*r*/) {}
  HWY_INLINE V prepare(V v) const { return v; }
  HWY_INLINE V combine(V a, V b) const { return hn::Add(a, b); }
  HWY_INLINE V finish(V v) const { return canonical_nan(D(), v); }
};

template<class D>
struct MeanOfFloats : SumOfFloats<D> {
  using V = hn::Vec<D>;
  hn::TFromD<D> members;
  explicit MeanOfFloats(const Reduction& r)
      : SumOfFloats<D>(r), members(static_cast<hn::TFromD<D>>(r.source_count)) {}
  HWY_INLINE V finish(V v) const { return canonical_nan(D(), hn::Div(v, hn::Set(D(), members))); }
};

template<class D>
struct ScaledSumOfFloats : SumOfFloats<D> {
  using V = hn::Vec<D>;
  static constexpr bool kFewLoops = true;
  hn::TFromD<D> scale;
  explicit ScaledSumOfFloats(const Reduction& r)
      : SumOfFloats<D>(r), scale(static_cast<hn::TFromD<D>>(r.scale)) {}
  HWY_INLINE V prepare(V v) const { return hn::Mul(v, hn::Set(D(), scale)); }
};

template<class D>
struct ProductOfFloats : SumOfFloats<D> {
  using V = hn::Vec<D>;
  static constexpr bool kFewLoops = true;
  using SumOfFloats<D>::SumOfFloats;
  HWY_INLINE V combine(V a, V b) const { return hn::Mul(a, b); }
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
      return reduce_by<Format, SumOfFloats<D>>;
    case MUSTER_AVG:
      return reduce_by<Format, MeanOfFloats<D>>;
    case MUSTER_MAX:
    case MUSTER_MIN:
      return reduce_by<Format, ExtremeOfFloats<D>>;
    case MUSTER_PROD:
      return reduce_by<Format, ProductOfFloats<D>>;
    default:
      return reduce_by<Format, ScaledSumOfFloats<D>>;
  }
}

}  // namespace muster::math::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
