// The standard normal distribution for floats, as a branch-free function of one lane (see exponential.hpp).
//
// Method: Φ(-a) = erfc(a/√2)/2 for a >= 0, and (1 + 2z)·exp(z²)·erfc(z) is a smooth function of t = (z -
// k)/(z + k) (form of Shepherd and Laframboise, Mathematics of Computation 36, 1981); its polynomial in t
// with k = 3 was fitted here by weighted least squares to 4e-9. The square in the exponent is split in two
// exact pieces, which keeps the relative accuracy of the tail. So Φ is within a few units in the last place
// on both sides; 1 + erf(x) would cancel on one.
#pragma once

#include "kernels/math/exponential.hpp"

#include <bit>
#include <cstdint>

namespace muster::math {

struct Normal {
  float cdf;   // Φ(x)
  float bell;  // exp(-x²/2); the density is this over √(2π)
};

[[gnu::always_inline]] inline Normal normal_at(float x) {
  constexpr float kFlat = 17.0f;  // Φ(-17) is zero
  float a = std::bit_cast<float>(std::bit_cast<std::uint32_t>(x) & 0x7fffffffu);
  a = choose(a > kFlat, kFlat, a);  // a NaN passes
  const float head = std::bit_cast<float>(std::bit_cast<std::uint32_t>(a) & 0xfffff000u);
  const float bell = exp_split(-0.5f * (head * head), -0.5f * ((a - head) * (a + head)));
  const float z = a * 0.707106781f;
  const float t = (z - 3.0f) / (z + 3.0f);
  float p = -0.00025094146258197725f;
  p = p * t + -0.0007350798696279526f;
  p = p * t + 0.002023906446993351f;
  p = p * t + 0.002548323245719075f;
  p = p * t + -0.0238149706274271f;
  p = p * t + 0.0682973563671112f;
  p = p * t + -0.11926741898059845f;
  p = p * t + 0.12964655458927155f;
  p = p * t + -0.047562625259160995f;
  p = p * t + -0.13562114536762238f;
  p = p * t + 1.2530080080032349f;
  const float tail = 0.5f * (bell * p) / (1.0f + 2.0f * z);
  return {choose(x < 0.0f, tail, 1.0f - tail), bell};
}

}  // namespace muster::math
