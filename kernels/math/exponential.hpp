// exp for floats, as a branch-free function of one lane. A loop over it vectorises, and gives the same bits
// for every lane width, which a library's vector exp does not promise.
//
// Method: e^x = 2^n · e^r with n = round(x / ln 2) and |r| <= ln(2)/2, the subtraction in two pieces (Cody
// and Waite, Software Manual for the Elementary Functions, 1980), and a polynomial for (e^r - 1 - r) / r²
// fitted here by weighted least squares to 3e-9 of e^r. Within 1.5 units in the last place of the true value;
// overflow gives infinity, results below the normal range round to subnormals and zero, NaN stays NaN.
#pragma once

#include <bit>
#include <cstdint>

namespace muster::math {

// condition ? a : b, without a branch at which the compiler could split the loop.
[[gnu::always_inline]] inline float choose(bool condition, float a, float b) {
  const std::uint32_t mask = std::uint32_t{0} - static_cast<std::uint32_t>(condition);
  return std::bit_cast<float>((std::bit_cast<std::uint32_t>(a) & mask) |
                              (std::bit_cast<std::uint32_t>(b) & ~mask));
}

// 2^e for a normal result.
[[gnu::always_inline]] inline float power_of_two(std::int32_t e) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(e + 127) << 23);
}

// e^(high + low), where low is a correction of a few thousandths of high or less.
[[gnu::always_inline]] inline float exp_split(float high, float low) {
  constexpr float kLowest = -110.0f;  // e^x is zero below
  constexpr float kHighest = 90.0f;   // and infinite above
  constexpr float kToInteger = 0x1.8p23f;
  float x = choose(high < kLowest, kLowest, high);  // a NaN passes both
  x = choose(x > kHighest, kHighest, x);
  const float shifted = x * 1.44269504f + kToInteger;
  const float n = shifted - kToInteger;
  const float r = ((x - n * 0.693359375f) - n * -2.12194440e-4f) + low;
  float q = 0.001381446490995586f;
  q = q * r + 0.008368780836462975f;
  q = q * r + 0.04166839271783829f;
  q = q * r + 0.1666651964187622f;
  q = q * r + 0.4999999403953552f;
  const float p = (q * (r * r) + r) + 1.0f;
  // The low bits of `shifted` hold n. Two factors, because 2^n may lie outside the range of a normal float.
  const auto integer = static_cast<std::int32_t>(std::bit_cast<std::uint32_t>(shifted) -
                                                 std::bit_cast<std::uint32_t>(kToInteger));
  const std::int32_t half = integer >> 1;
  return p * power_of_two(half) * power_of_two(integer - half);
}

[[gnu::always_inline]] inline float exponential(float x) {
  return exp_split(x, 0.0f);
}

// 1 / (1 + e^-x).
[[gnu::always_inline]] inline float sigmoid(float x) {
  return 1.0f / (1.0f + exponential(-x));
}

}  // namespace muster::math
