// f8_e4m3 and f8_e5m2: lanes are f32, elements are rounded once at the end.
#include "kernels/math/reduce_formats.hpp"

#include <cstdint>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/math/reduce_quarter.cpp"
#include <hwy/foreach_target.h>
//
#include "kernels/math/reduce_ops.hpp"

HWY_BEFORE_NAMESPACE();
namespace muster::math::HWY_NAMESPACE {

// All processors with AVX2 have F16C. Other targets compute the same values by integer arithmetic.
#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX2 && !defined(HWY_DISABLE_F16C)

// By way of f16: an e5m2 is the upper half of an f16, and an e4m3 has the same fields with a bias lower by 8.
struct QuarterByHalf : FloatLanes<std::uint8_t> {
  using DH = hn::Rebind<hwy::float16_t, D>;
  using D16 = hn::Rebind<std::int16_t, D>;
  using V16 = hn::Vec<D16>;

  static HWY_INLINE V16 word16(std::int32_t bits) { return hn::Set(D16(), static_cast<std::int16_t>(bits)); }
  static HWY_INLINE V16 signed_bits(hn::Vec<Elements> v) {
    return hn::PromoteTo(D16(), hn::BitCast(hn::RebindToSigned<Elements>(), v));
  }
  static HWY_INLINE hn::Vec<D> value_of(V16 half) { return hn::PromoteTo(D(), hn::BitCast(DH(), half)); }

  // The f16 that rounds to the same element as v. Two roundings equal one only if the bits that the first one
  // drops stay visible. So the upper 6 of the 23 mantissa bits stay, and the last of them is set if any lower
  // bit was. An f16 holds that exactly: it has 6 such bits down to 2^-18, and half of the smallest element is
  // 2^-17 or 2^-18.
  static HWY_INLINE V16 sticky_half(hn::Vec<D> v) {
    const VI bits = hn::BitCast(DI(), v);
    const VI low = word(0x1FFFF);
    const VI sticky = hn::AndNot(low, hn::Or(bits, hn::Add(hn::And(bits, low), low)));
    return hn::BitCast(D16(), hn::DemoteTo(DH(), hn::BitCast(D(), sticky)));
  }
  // Drops the lowest bits, to nearest even. A sign on top stays there.
  template<int kDropped>
  static HWY_INLINE V16 round_off(V16 v) {
    const auto odd = hn::And(hn::ShiftRight<kDropped>(v), word16(1));
    return hn::ShiftRight<kDropped>(hn::Add(v, hn::Add(odd, word16((1 << (kDropped - 1)) - 1))));
  }
};

struct E4m3Format : QuarterByHalf {
  static HWY_INLINE hn::Vec<D> widen(hn::Vec<Elements> v) {
    // The sign was extended to 16 bits, so clear its copy in the highest bit of the exponent.
    const V16 half = hn::And(hn::ShiftLeft<7>(signed_bits(v)), word16(0xBFFF));
    const auto is_nan = hn::Eq(hn::And(half, word16(0x3F80)), word16(0x3F80));
    return hn::Mul(value_of(hn::IfThenElse(is_nan, word16(0x7E00), half)), hn::Set(D(), 256.0f));
  }
  // NaN and infinity are larger than everything, so one minimum makes all that overflows NaN, without a sign.
  static HWY_INLINE hn::Vec<Elements> narrow(hn::Vec<D> v) {
    const V16 half = sticky_half(hn::Mul(v, hn::Set(D(), 1.0f / 256)));
    const V16 magnitude = hn::Min(round_off<7>(hn::And(half, word16(0x7FFF))), word16(0x7F));
    const V16 sign = hn::And(hn::ShiftRight<8>(half), word16(0x80));
    const auto is_number = hn::Lt(magnitude, word16(0x7F));
    return hn::DemoteTo(Elements(), hn::Or(magnitude, hn::IfThenElseZero(is_number, sign)));
  }
};

struct E5m2Format : QuarterByHalf {
  static HWY_INLINE hn::Vec<D> widen(hn::Vec<Elements> v) {
    return value_of(hn::ShiftLeft<8>(signed_bits(v)));
  }
  // A carry may reach infinity; infinity and NaN have no bits to round off. Narrows signed bytes, because the
  // arithmetic shift brings the sign down.
  static HWY_INLINE hn::Vec<Elements> narrow(hn::Vec<D> v) {
    const hn::RebindToSigned<Elements> signed_elements;
    return hn::BitCast(Elements(), hn::DemoteTo(signed_elements, round_off<8>(sticky_half(v))));
  }
};

#else

// kMantissa and kBias are the format's.
template<int kMantissa, int kBias>
struct QuarterByWords : FloatLanes<std::uint8_t> {
  // The value by the rule for finite ones, whatever the pattern.
  static HWY_INLINE hn::Vec<D> finite(hn::Vec<Elements> v) {
    const VI bits = hn::PromoteTo(DI(), v);
    const VI magnitude = hn::ShiftLeft<23 - kMantissa>(hn::And(bits, word(0x7F)));
    // A subnormal counts units: put them under the exponent of the smallest normal, then subtract that.
    constexpr std::int32_t kSmallestNormal = (128 - kBias) << 23;
    const auto raised = hn::BitCast(D(), hn::Add(magnitude, word(kSmallestNormal)));
    const VI tiny = hn::BitCast(DI(), hn::Sub(raised, real(kSmallestNormal)));
    const VI normal = hn::Add(magnitude, word((127 - kBias) << 23));
    const VI value = hn::IfThenElse(hn::Lt(magnitude, word(1 << 23)), tiny, normal);
    return hn::BitCast(D(), hn::Or(value, hn::ShiftLeft<24>(hn::And(bits, word(0x80)))));
  }

  // The pattern of a positive value; if the value overflows, any pattern above the largest number.
  static HWY_INLINE VI rounded(VI magnitude) {
    constexpr std::int32_t kRebase = (127 - kBias) << 23;
    constexpr int kDropped = 23 - kMantissa;
    // Below the smallest normal: add a number whose unit is the spacing of subnormals, which rounds.
    constexpr std::int32_t kUnit = (127 + 24 - kMantissa - kBias) << 23;
    const VI tiny =
        hn::Sub(hn::BitCast(DI(), hn::Add(hn::BitCast(D(), magnitude), real(kUnit))), word(kUnit));
    // Others: rebase the exponent and round to nearest even in integers; a carry into the exponent is right.
    const VI odd = hn::And(hn::ShiftRight<kDropped>(magnitude), word(1));
    const VI rebased = hn::Add(magnitude, word((1 << (kDropped - 1)) - 1 - kRebase));
    const VI normal = hn::ShiftRight<kDropped>(hn::Add(rebased, odd));
    return hn::IfThenElse(hn::Lt(magnitude, word(kRebase + (1 << 23))), tiny, normal);
  }
  static HWY_INLINE VI sign_of(VI bits) { return hn::And(hn::ShiftRight<24>(bits), word(0x80)); }
};

struct E4m3Format : QuarterByWords<3, 7> {
  static HWY_INLINE hn::Vec<D> widen(hn::Vec<Elements> v) {
    const auto value = finite(v);
    const auto is_nan = hn::Eq(hn::Abs(value), hn::Set(D(), 480.0f));  // the largest pattern is no number
    return hn::IfThenElse(is_nan, real(0x7FC00000), value);
  }
  // NaN and infinity are larger than everything, so one minimum makes all that overflows NaN, without a sign.
  static HWY_INLINE hn::Vec<Elements> narrow(hn::Vec<D> v) {
    const VI bits = hn::BitCast(DI(), v);
    const VI magnitude = hn::Min(rounded(hn::And(bits, word(0x7FFFFFFF))), word(0x7F));
    const VI sign = hn::IfThenElseZero(hn::Lt(magnitude, word(0x7F)), sign_of(bits));
    return hn::DemoteTo(Elements(), hn::Or(magnitude, sign));
  }
};

struct E5m2Format : QuarterByWords<2, 15> {
  static HWY_INLINE hn::Vec<D> widen(hn::Vec<Elements> v) {
    const auto value = finite(v);
    const auto is_finite = hn::Lt(hn::Abs(value), hn::Set(D(), 65536.0f));
    return hn::IfThenElse(is_finite, value, hn::Or(value, real(0x7F800000)));
  }
  // A NaN is the canonical one here, without a sign.
  static HWY_INLINE hn::Vec<Elements> narrow(hn::Vec<D> v) {
    const VI bits = hn::BitCast(DI(), v);
    const VI magnitude = hn::And(bits, word(0x7FFFFFFF));
    const VI number = hn::Min(rounded(magnitude), word(0x7C));
    const VI value = hn::IfThenElse(hn::Gt(magnitude, word(0x7F800000)), word(0x7E), number);
    return hn::DemoteTo(Elements(), hn::Or(value, sign_of(bits)));
  }
};

#endif

Reducer quarter_loops(muster_dtype dtype, muster_redop redop) {
  return dtype == MUSTER_F8_E4M3 ? float_reducer<E4m3Format>(redop) : float_reducer<E5m2Format>(redop);
}

}  // namespace muster::math::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace muster::math {

HWY_EXPORT(quarter_loops);

Reducer reducer_quarter(muster_dtype dtype, muster_redop redop) {
  return HWY_DYNAMIC_DISPATCH(quarter_loops)(dtype, redop);
}

}  // namespace muster::math
#endif  // HWY_ONCE
