// The two 16-bit floats, as values: conversion to float is exact, conversion from float or double rounds
// once, to nearest, ties to even. Without branches, so that loops over them vectorise.
#pragma once

#include <bit>
#include <cstdint>

namespace muster::math {

// The upper half of a float: 8 exponent bits, 7 mantissa bits.
struct Bf16 {
  std::uint16_t bits = 0;
};

// IEEE 754 binary16: 5 exponent bits, 10 mantissa bits.
struct F16 {
  std::uint16_t bits = 0;
};

constexpr float to_float(Bf16 x) {
  return std::bit_cast<float>(std::uint32_t{x.bits} << 16);
}

constexpr float to_float(F16 x) {
  const std::uint32_t sign = (std::uint32_t{x.bits} & 0x8000u) << 16;
  const std::uint32_t magnitude = x.bits & 0x7fffu;
  // A float with the same fields is 2^112 times too small. The product is exact, and lifts subnormals too. An
  // exponent of all ones must stay all ones.
  const std::uint32_t lifted = std::bit_cast<std::uint32_t>(std::bit_cast<float>(magnitude << 13) * 0x1p112f);
  const std::uint32_t all_ones = magnitude >= 0x7c00u ? 0x7f800000u : 0u;
  return std::bit_cast<float>(sign | lifted | all_ones);
}

// A NaN stays a NaN (made quiet); overflow gives infinity, as nearest rounding demands.
constexpr Bf16 to_bf16(float x) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(x);
  const std::uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
  const std::uint32_t quiet = (bits >> 16) | 0x40u;
  return {static_cast<std::uint16_t>((bits & 0x7fffffffu) > 0x7f800000u ? quiet : rounded)};
}

// Uses masks: a compiler turns selects into branches here, and a loop with branches does not vectorise.
constexpr F16 to_f16(float x) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(x);
  const std::uint32_t sign = (bits >> 16) & 0x8000u;
  const std::uint32_t magnitude = bits & 0x7fffffffu;
  const std::uint32_t is_small = 0u - std::uint32_t{magnitude < 0x38800000u};   // below 2^-14
  const std::uint32_t is_large = 0u - std::uint32_t{magnitude >= 0x47800000u};  // 65536 and more
  const std::uint32_t is_nan = 0u - std::uint32_t{magnitude > 0x7f800000u};
  // The unit of a float near 0.5 is the unit of an F16 subnormal. The result is 0 if the value is not small.
  const float at_half = std::bit_cast<float>(magnitude & is_small) + 0.5f;
  const std::uint32_t subnormal = std::bit_cast<std::uint32_t>(at_half) - 0x3f000000u;
  // Move the exponent from bias 127 to 15, then round; a carry out of the mantissa is right, also into
  // infinity.
  const std::uint32_t normal = (magnitude - 0x38000000u + 0xfffu + ((magnitude >> 13) & 1u)) >> 13;
  const std::uint32_t special = 0x7c00u | ((0x200u | ((magnitude >> 13) & 0x3ffu)) & is_nan);
  const std::uint32_t finite = subnormal | (normal & ~is_small);
  return {static_cast<std::uint16_t>(sign | (finite & ~is_large) | (special & is_large))};
}

// x itself if it is a float, else the neighbouring float whose last bit is odd. Rounding that to 16 bits
// equals rounding x once, which rounding twice to nearest would not.
constexpr float to_odd_float(double x) {
  const float nearest = static_cast<float>(x);
  const double back = static_cast<double>(nearest);
  std::uint32_t bits = std::bit_cast<std::uint32_t>(nearest);
  if (back == x || x != x || (bits & 1u) != 0) return nearest;
  const bool too_large = (back > x) == (x > 0);  // in magnitude
  bits += too_large ? 0xffffffffu : 1u;
  return std::bit_cast<float>(bits);
}

constexpr Bf16 to_bf16(double x) {
  return to_bf16(to_odd_float(x));
}
constexpr F16 to_f16(double x) {
  return to_f16(to_odd_float(x));
}

}  // namespace muster::math
