#include "kernels/math/reduce.hpp"

#include "api/base/dtype.hpp"
#include "tests/kernels/math/scalar_reduce.hpp"
#include "tests/kernels/math/simd_targets.hpp"

#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace muster::math {
namespace {

struct Pattern {
  const char* name;
  std::uint64_t f32, bf16, f16, f64;
};

// One value of every kind, as bits of each float type.
constexpr Pattern kNan = {"NaN", 0x7FC00000, 0x7FC0, 0x7E00, 0x7FF8000000000000};
constexpr Pattern kOddNan = {"-NaN with a payload", 0xFFC12345, 0xFFC5, 0xFE15, 0xFFF8000000012345};
constexpr Pattern kSignallingNan = {"signalling NaN", 0x7F800001, 0x7F81, 0x7C01, 0x7FF0000000000001};
constexpr Pattern kInfinity = {"+inf", 0x7F800000, 0x7F80, 0x7C00, 0x7FF0000000000000};
constexpr Pattern kMinusInfinity = {"-inf", 0xFF800000, 0xFF80, 0xFC00, 0xFFF0000000000000};
constexpr Pattern kZero = {"+0", 0, 0, 0, 0};
constexpr Pattern kMinusZero = {"-0", 0x80000000, 0x8000, 0x8000, 0x8000000000000000};
constexpr Pattern kOne = {"1", 0x3F800000, 0x3F80, 0x3C00, 0x3FF0000000000000};
constexpr Pattern kMinusOne = {"-1", 0xBF800000, 0xBF80, 0xBC00, 0xBFF0000000000000};
constexpr Pattern kTiny = {"smallest subnormal", 1, 1, 1, 1};
constexpr Pattern kTwoTiny = {"two smallest subnormals", 2, 2, 2, 2};
constexpr Pattern kMinusTiny = {"-smallest subnormal", 0x80000001, 0x8001, 0x8001, 0x8000000000000001};
constexpr Pattern kLargest = {"largest", 0x7F7FFFFF, 0x7F7F, 0x7BFF, 0x7FEFFFFFFFFFFFFF};

struct Row {
  muster_redop redop;
  Pattern a, b, expected;
};

constexpr Row kTruth[] = {
    {MUSTER_MAX, kOne, kNan, kNan},
    {MUSTER_MAX, kSignallingNan, kInfinity, kNan},
    {MUSTER_MIN, kOddNan, kMinusInfinity, kNan},
    {MUSTER_MIN, kOne, kSignallingNan, kNan},
    {MUSTER_MAX, kMinusZero, kZero, kZero},
    {MUSTER_MAX, kZero, kMinusZero, kZero},
    {MUSTER_MIN, kMinusZero, kZero, kMinusZero},
    {MUSTER_MIN, kZero, kMinusZero, kMinusZero},
    {MUSTER_MAX, kMinusZero, kMinusZero, kMinusZero},
    {MUSTER_MAX, kMinusInfinity, kMinusOne, kMinusOne},
    {MUSTER_MIN, kInfinity, kLargest, kLargest},
    {MUSTER_MAX, kTiny, kZero, kTiny},
    {MUSTER_MIN, kMinusTiny, kMinusZero, kMinusTiny},
    {MUSTER_MAX, kMinusTiny, kMinusOne, kMinusTiny},
    {MUSTER_SUM, kInfinity, kMinusInfinity, kNan},
    {MUSTER_SUM, kOddNan, kOne, kNan},
    {MUSTER_SUM, kInfinity, kOne, kInfinity},
    {MUSTER_SUM, kMinusZero, kMinusZero, kMinusZero},
    {MUSTER_SUM, kZero, kMinusZero, kZero},
    {MUSTER_SUM, kTiny, kTiny, kTwoTiny},
    {MUSTER_SUM, kTiny, kMinusTiny, kZero},
    {MUSTER_SUM, kLargest, kLargest, kInfinity},
    {MUSTER_AVG, kTiny, kTiny, kTiny},
    {MUSTER_AVG, kMinusInfinity, kOne, kMinusInfinity},
    {MUSTER_PROD, kZero, kInfinity, kNan},
    {MUSTER_PROD, kMinusOne, kInfinity, kMinusInfinity},
    {MUSTER_PROD, kMinusOne, kZero, kMinusZero},
    {MUSTER_PREMUL_SUM, kMinusZero, kMinusZero, kMinusZero},
    {MUSTER_PREMUL_SUM, kSignallingNan, kOne, kNan},
};

std::uint64_t bits_of(const Pattern& pattern, muster_dtype dtype) {
  if (dtype == MUSTER_F32) return pattern.f32;
  if (dtype == MUSTER_BF16) return pattern.bf16;
  return dtype == MUSTER_F16 ? pattern.f16 : pattern.f64;
}

// Goal:   what muster.h says about NaN, infinities, signed zeros and subnormals holds in every lane of every
// target. Method: the table above, spread over 37 equal elements so that full vectors and the rest are both
// seen.
TEST(SpecialValues, FollowTheTruthTableOnEverySimdTarget) {
  constexpr std::size_t kCount = 37;
  test::on_every_target([](const std::string&) {
    for (const muster_dtype dtype : {MUSTER_F32, MUSTER_BF16, MUSTER_F16, MUSTER_F64})
      for (const Row& row : kTruth) {
        // Largest + largest overflows only where the accumulation type is the element's own or rounds to it:
        // all of them.
        const std::size_t bytes = dtype_bytes(dtype);
        std::vector<std::byte> a(kCount * bytes), b(kCount * bytes), expected(kCount * bytes),
            actual(kCount * bytes);
        for (std::size_t i = 0; i < kCount; ++i) {
          const std::uint64_t x = bits_of(row.a, dtype), y = bits_of(row.b, dtype),
                              z = bits_of(row.expected, dtype);
          std::memcpy(a.data() + i * bytes, &x, bytes);
          std::memcpy(b.data() + i * bytes, &y, bytes);
          std::memcpy(expected.data() + i * bytes, &z, bytes);
        }
        const std::byte* sources[] = {a.data(), b.data()};
        reduce(dtype, row.redop, sources, actual.data(), kCount, 1.0);
        EXPECT_EQ(actual, expected) << "redop " << row.redop << ", dtype " << dtype << ": " << row.a.name
                                    << ", " << row.b.name << " should give " << row.expected.name;
      }
  });
}

// Goal:   a NaN in any one of many members reaches the result of MAX and MIN.
TEST(SpecialValues, ANanOfAnyMemberIsTheMaximumAndTheMinimum) {
  for (std::size_t n = 1; n <= 11; ++n)
    for (std::size_t at = 0; at < n; ++at) {
      std::vector<float> values(n, 2.0f);
      values[at] = -std::numeric_limits<float>::quiet_NaN();
      std::vector<const std::byte*> sources;
      for (const float& v : values) sources.push_back(reinterpret_cast<const std::byte*>(&v));
      for (const muster_redop redop : {MUSTER_MAX, MUSTER_MIN}) {
        std::uint32_t result = 0;
        reduce(MUSTER_F32, redop, sources, reinterpret_cast<std::byte*>(&result), 1, 1.0);
        EXPECT_EQ(result, 0x7FC00000u) << "member " << at << " of " << n;
      }
    }
}

// Goal:   all 65,536 values of a 16-bit type survive widening and rounding, and every rounding is to nearest
// even. Method: one source under scale 1 must come back as it was (NaN as the canonical one); under other
// scales, products that
//         fall between two elements, into the subnormals and past the largest must match arithmetic in
//         double.
TEST(SpecialValues, SixteenBitFloatsRoundOnceToNearestEven) {
  std::vector<std::uint16_t> all(65536);
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<std::uint16_t>(i);
  const std::byte* sources[] = {reinterpret_cast<const std::byte*>(all.data())};
  test::on_every_target([&](const std::string&) {
    for (const muster_dtype dtype : {MUSTER_BF16, MUSTER_F16}) {
      std::vector<std::uint16_t> actual(all.size());
      reduce(dtype, MUSTER_SUM, sources, reinterpret_cast<std::byte*>(actual.data()), all.size(), 1.0);
      const std::uint32_t infinity = dtype == MUSTER_BF16 ? 0x7F80 : 0x7C00;
      for (std::uint32_t i = 0; i < 65536; ++i) {
        const bool nan = (i & 0x7FFF) > infinity;
        ASSERT_EQ(actual[i], nan ? (dtype == MUSTER_BF16 ? 0x7FC0 : 0x7E00) : i) << "dtype " << dtype;
      }
      for (const double scale : {1.0 + 1.0 / 1024, 1.5, 0.75, 0.3, 1.0 / 4096, 3e-5, 2000.0, -1.25}) {
        std::vector<std::uint16_t> expected(all.size());
        test::scalar_reduce(dtype, MUSTER_PREMUL_SUM, sources, reinterpret_cast<std::byte*>(expected.data()),
                            all.size(), scale);
        reduce(dtype, MUSTER_PREMUL_SUM, sources, reinterpret_cast<std::byte*>(actual.data()), all.size(),
               scale);
        ASSERT_EQ(actual, expected) << "dtype " << dtype << ", scale " << scale;
      }
    }
  });
}

}  // namespace
}  // namespace muster::math
