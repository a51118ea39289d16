// The two 8-bit floats, as values: conversion to float is exact, conversion from float or double rounds once,
// to nearest, ties to even. Without branches, so that loops over them vectorise.
//
// Values overflow by rounding and never saturate. e5m2 has an infinity, which values from 61440 on become.
// e4m3 has none, so values above 464, which round to more than 448, become NaN. This is the non-saturating
// mode of the OCP 8-bit floating point specification, revision 1.0. Every NaN is written as the positive
// quiet one: 0x7F in e4m3, 0x7E in e5m2.
#pragma once

#include "kernels/math/float16.hpp"

#include <bit>
#include <cstdint>

namespace muster::math {

// 4 exponent bits with bias 7, 3 mantissa bits. All ones is NaN; other patterns of the highest exponent are
// numbers.
struct F8E4m3 {
  std::uint8_t bits = 0;
};

// 5 exponent bits with bias 15, 2 mantissa bits: the upper half of an F16.
struct F8E5m2 {
  std::uint8_t bits = 0;
};

constexpr float to_float(F8E4m3 x) {
  const std::uint32_t sign = (std::uint32_t{x.bits} & 0x80u) << 24;
  const std::uint32_t magnitude = (std::uint32_t{x.bits} & 0x7fu) << 20;  // as fields of a float
  const std::uint32_t is_small = 0u - std::uint32_t{magnitude < 0x00800000u};
  const std::uint32_t is_nan = 0u - std::uint32_t{magnitude == 0x07f00000u};
  // A subnormal counts units of 2^-9: put them under the exponent of 2^-6, then subtract 2^-6. No step makes
  // a subnormal float, because a thread may have told its processor to treat these as zero.
  const float raised = std::bit_cast<float>(magnitude + 0x3c800000u);
  const std::uint32_t subnormal = std::bit_cast<std::uint32_t>(raised - 0x1p-6f);
  const std::uint32_t normal = magnitude + 0x3c000000u;  // from bias 7 to 127
  return std::bit_cast<float>(sign | (subnormal & is_small) | (normal & ~is_small) | (0x7fc00000u & is_nan));
}

constexpr float to_float(F8E5m2 x) {
  const std::uint32_t sign = (std::uint32_t{x.bits} & 0x80u) << 24;
  const std::uint32_t magnitude = (std::uint32_t{x.bits} & 0x7fu) << 21;
  const std::uint32_t is_small = 0u - std::uint32_t{magnitude < 0x00800000u};
  const std::uint32_t is_special = 0u - std::uint32_t{magnitude >= 0x0f800000u};
  const float raised = std::bit_cast<float>(magnitude + 0x38800000u);  // units of 2^-16 above 2^-14
  const std::uint32_t subnormal = std::bit_cast<std::uint32_t>(raised - 0x1p-14f);
  const std::uint32_t normal = magnitude + 0x38000000u;  // from bias 15 to 127
  return std::bit_cast<float>(sign | (subnormal & is_small) | (normal & ~is_small) |
                              (0x7f800000u & is_special));
}

constexpr F8E4m3 to_f8_e4m3(float x) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(x);
  const std::uint32_t sign = (bits >> 24) & 0x80u;
  const std::uint32_t magnitude = bits & 0x7fffffffu;
  const std::uint32_t is_small = 0u - std::uint32_t{magnitude < 0x3c800000u};  // below 2^-6
  // The unit of a float at 2^14 is the unit of a subnormal. The result is 0 if the value is not small.
  const float at_unit = std::bit_cast<float>(magnitude & is_small) + 0x1p14f;
  const std::uint32_t subnormal = std::bit_cast<std::uint32_t>(at_unit) - 0x46800000u;
  // Move the exponent from bias 127 to 7, then round; a carry out of the mantissa is right.
  const std::uint32_t normal = (magnitude - 0x3c000000u + 0x7ffffu + ((magnitude >> 20) & 1u)) >> 20;
  const std::uint32_t number = subnormal | (normal & ~is_small);
  const std::uint32_t is_nan = 0u - std::uint32_t{number > 0x7eu};  // infinity and NaN too: they are larger
  return {static_cast<std::uint8_t>(((sign | number) & ~is_nan) | (0x7fu & is_nan))};
}

constexpr F8E5m2 to_f8_e5m2(float x) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(x);
  const std::uint32_t sign = (bits >> 24) & 0x80u;
  const std::uint32_t magnitude = bits & 0x7fffffffu;
  const std::uint32_t is_small = 0u - std::uint32_t{magnitude < 0x38800000u};  // below 2^-14
  const std::uint32_t is_nan = 0u - std::uint32_t{magnitude > 0x7f800000u};
  const float at_unit = std::bit_cast<float>(magnitude & is_small) + 0x1p7f;
  const std::uint32_t subnormal = std::bit_cast<std::uint32_t>(at_unit) - 0x43000000u;
  const std::uint32_t normal = (magnitude - 0x38000000u + 0xfffffu + ((magnitude >> 21) & 1u)) >> 21;
  const std::uint32_t number = subnormal | (normal & ~is_small);
  const std::uint32_t is_large = 0u - std::uint32_t{number > 0x7cu};
  const std::uint32_t value = sign | (number & ~is_large) | (0x7cu & is_large);
  return {static_cast<std::uint8_t>((value & ~is_nan) | (0x7eu & is_nan))};
}

constexpr F8E4m3 to_f8_e4m3(double x) {
  return to_f8_e4m3(to_odd_float(x));
}
constexpr F8E5m2 to_f8_e5m2(double x) {
  return to_f8_e5m2(to_odd_float(x));
}

}  // namespace muster::math
