// Seeded bytes for tests: every case is named by one number.
#pragma once

#include "api/base/dtype.hpp"

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <iterator>

namespace muster::math::test {

// SplitMix64 (Steele, Lea, Flood 2014): any seed is a good seed.
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}
  std::uint64_t next() {
    std::uint64_t z = (state_ += 0x9E3779B97F4A7C15u);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
  }
  // 0..bound-1
  std::uint64_t below(std::uint64_t bound) { return next() % bound; }

 private:
  std::uint64_t state_;
};

// Bits of a float with the exponent field in [bias-6, bias+1], or now and then of anything at all: NaN,
// infinities, subnormals, zeros.
inline std::uint64_t float_bits(Random& random, int mantissa_bits, int exponent_bits) {
  const std::uint64_t raw = random.next();
  const std::uint64_t all = (std::uint64_t{2} << (mantissa_bits + exponent_bits)) - 1;
  if (random.below(32) == 0) return raw & all;
  if (random.below(64) == 0) return (raw & 1) << (mantissa_bits + exponent_bits);  // a zero with a sign
  const std::uint64_t bias = (std::uint64_t{1} << (exponent_bits - 1)) - 1;
  const std::uint64_t exponent = bias - 6 + (raw >> 60) % 8;
  const std::uint64_t mantissa = raw & ((std::uint64_t{1} << mantissa_bits) - 1);
  const std::uint64_t sign = (raw >> 59) & 1;
  return (sign << (mantissa_bits + exponent_bits)) | (exponent << mantissa_bits) | mantissa;
}

inline std::uint64_t element_bits(Random& random, muster_dtype dtype) {
  switch (dtype) {
    case MUSTER_F32:
      return float_bits(random, 23, 8);
    case MUSTER_BF16:
      return float_bits(random, 7, 8);
    case MUSTER_F16:
      return float_bits(random, 10, 5);
    case MUSTER_F8_E4M3:
      return float_bits(random, 3, 4);
    case MUSTER_F8_E5M2:
      return float_bits(random, 2, 5);
    case MUSTER_F64: {
      // 64 bits leave no room above the sign for the mask of float_bits.
      const std::uint64_t raw = random.next();
      if (random.below(32) == 0) return raw;
      return (raw & 0x800FFFFFFFFFFFFFu) | ((1017 + (raw >> 56) % 8) << 52);
    }
    default:
      return random.next();
  }
}

inline void fill(muster_dtype dtype, std::byte* to, std::size_t count, std::uint64_t seed) {
  Random random(seed);
  const std::size_t bytes = dtype_bytes(dtype);
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint64_t bits = element_bits(random, dtype);
    std::memcpy(to + i * bytes, &bits, bytes);  // little-endian: the low bytes are the element
  }
}

// Floats of 32 or 64 bits of which some dozens have an exact sum and an exact product.
inline void fill_exactly(muster_dtype dtype, std::byte* to, std::size_t count, std::uint64_t seed) {
  constexpr double kValues[] = {-2, -1, -0.5, 0.5, 1, 2};
  Random random(seed);
  for (std::size_t i = 0; i < count; ++i) {
    const double value = kValues[random.below(std::size(kValues))];
    const auto narrow = static_cast<float>(value);
    if (dtype == MUSTER_F64)
      std::memcpy(to + i * sizeof value, &value, sizeof value);
    else
      std::memcpy(to + i * sizeof narrow, &narrow, sizeof narrow);
  }
}

inline const char* redop_name(muster_redop redop) {
  constexpr const char* kNames[] = {"none", "sum", "avg", "max", "min", "prod", "premul_sum"};
  return kNames[redop];
}

inline constexpr muster_dtype kDtypes[] = {MUSTER_F32,     MUSTER_BF16,   MUSTER_F16, MUSTER_F64,
                                           MUSTER_I32,     MUSTER_I64,    MUSTER_U8,  MUSTER_I8,
                                           MUSTER_F8_E4M3, MUSTER_F8_E5M2};
inline constexpr muster_redop kRedops[] = {MUSTER_SUM, MUSTER_AVG,  MUSTER_MAX,
                                           MUSTER_MIN, MUSTER_PROD, MUSTER_PREMUL_SUM};

// A scale that is legal for the dtype and changes values.
inline double scale_for(muster_dtype dtype) {
  return is_integer(dtype) ? -3.0 : 0.3;
}

}  // namespace muster::math::test
