// bf16 and f16: lanes are f32, elements are rounded once at the end.
#include "kernels/math/reduce_formats.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/math/reduce_half.cpp"
#include <hwy/foreach_target.h>
//
#include "kernels/math/reduce_ops.hpp"

HWY_BEFORE_NAMESPACE();
namespace muster::math::HWY_NAMESPACE {

// The upper half of each lane. The arithmetic shift leaves values that fit, so the narrowing never saturates.
template<class DU>
HWY_INLINE auto upper_half(DU /*du*/, hn::Vec<DU> bits) {
  const hn::Rebind<std::int16_t, DU> signed_half;
  const auto upper = hn::ShiftRight<16>(hn::BitCast(hn::RebindToSigned<DU>(), bits));
  return hn::BitCast(hn::Rebind<std::uint16_t, DU>(), hn::DemoteTo(signed_half, upper));
}

struct Bf16Format : FloatLanes<std::uint16_t> {
  static HWY_INLINE hn::Vec<D> widen(hn::Vec<Elements> v) {
    return hn::BitCast(D(), hn::ShiftLeft<16>(hn::PromoteTo(DU(), v)));
  }
  // Rounds to nearest even: adds just under half, and one more if the kept part is odd. A carry into the
  // exponent is right, up to infinity. A NaN is the canonical one here, which the addition leaves a NaN.
  static HWY_INLINE hn::Vec<Elements> narrow(hn::Vec<D> v) {
    const DU du;
    const auto bits = hn::BitCast(du, v);
    const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(du, 1u));
    return upper_half(du, hn::Add(bits, hn::Add(odd, hn::Set(du, 0x7FFFu))));
  }
};

// All processors with AVX2 have F16C. Other targets compute the same values by integer arithmetic.
#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX2 && !defined(HWY_DISABLE_F16C)

struct F16Format : FloatLanes<std::uint16_t> {
  using DH = hn::Rebind<hwy::float16_t, D>;
  static HWY_INLINE hn::Vec<D> widen(hn::Vec<Elements> v) { return hn::PromoteTo(D(), hn::BitCast(DH(), v)); }
  static HWY_INLINE hn::Vec<Elements> narrow(hn::Vec<D> v) {
    return hn::BitCast(Elements(), hn::DemoteTo(DH(), v));
  }
};

#else

struct F16Format : FloatLanes<std::uint16_t> {
  static HWY_INLINE hn::Vec<D> widen(hn::Vec<Elements> v) {
    const VI half = hn::BitCast(DI(), hn::PromoteTo(DU(), v));
    const VI magnitude = hn::And(half, word(0x7FFF));
    const VI sign = hn::ShiftLeft<16>(hn::And(half, word(0x8000)));
    const VI shifted = hn::ShiftLeft<13>(magnitude);
    // A subnormal is mantissa · 2^-24: put the mantissa under the exponent of 2^-14 and take the 2^-14 away
    // again.
    constexpr std::int32_t kSmallestNormal = 113 << 23;
    const VI tiny = hn::BitCast(
        DI(), hn::Sub(hn::BitCast(D(), hn::Add(shifted, word(kSmallestNormal))), real(kSmallestNormal)));
    const VI normal = hn::Add(shifted, word(112 << 23));
    const VI special = hn::Or(shifted, word(0x7F800000));
    VI value = hn::IfThenElse(hn::Lt(magnitude, word(0x0400)), tiny, normal);
    value = hn::IfThenElse(hn::Gt(magnitude, word(0x7BFF)), special, value);
    return hn::BitCast(D(), hn::Or(value, sign));
  }

  static HWY_INLINE hn::Vec<Elements> narrow(hn::Vec<D> v) {
    const VI bits = hn::BitCast(DI(), v);
    const VI magnitude = hn::And(bits, word(0x7FFFFFFF));
    const VI sign = hn::And(bits, word(static_cast<std::int32_t>(0x80000000)));
    // Below 2^-14: adding 2^-1 (an f32 unit there is 2^-24, the spacing of f16's subnormals) makes the adder
    // round.
    constexpr std::int32_t kHalf = 126 << 23;
    const VI tiny =
        hn::Sub(hn::BitCast(DI(), hn::Add(hn::BitCast(D(), magnitude), real(kHalf))), word(kHalf));
    // Normal: rebase the exponent and round to nearest even in integers; a carry may reach infinity.
    const VI odd = hn::And(hn::ShiftRight<13>(magnitude), word(1));
    const VI rebased = hn::Sub(magnitude, word(112 << 23));
    const VI normal = hn::ShiftRight<13>(hn::Add(rebased, hn::Add(odd, word(0x0FFF))));
    const VI special = hn::IfThenElse(hn::Gt(magnitude, word(0x7F800000)), word(0x7E00), word(0x7C00));
    VI half = hn::IfThenElse(hn::Lt(magnitude, word(113 << 23)), tiny, normal);
    half = hn::IfThenElse(hn::Gt(magnitude, word((143 << 23) - 1)), special, half);
    return upper_half(DU(), hn::BitCast(DU(), hn::Or(hn::ShiftLeft<16>(half), sign)));
  }
};

#endif

Reducer half_loops(muster_dtype dtype, muster_redop redop) {
  return dtype == MUSTER_BF16 ? float_reducer<Bf16Format>(redop) : float_reducer<F16Format>(redop);
}

}  // namespace muster::math::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace muster::math {

HWY_EXPORT(half_loops);

Reducer reducer_half(muster_dtype dtype, muster_redop redop) {
  return HWY_DYNAMIC_DISPATCH(half_loops)(dtype, redop);
}

}  // namespace muster::math
#endif  // HWY_ONCE
