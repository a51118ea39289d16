#include "kernels/math/reduce.hpp"

#include "api/base/dtype.hpp"
#include "tests/kernels/math/scalar_reduce.hpp"
#include "tests/kernels/math/simd_targets.hpp"
#include "tests/kernels/math/values.hpp"

#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace muster::math {
namespace {

constexpr std::uint64_t kAbsent = ~std::uint64_t{0};  // e4m3 has no infinity

struct Pattern {
  const char* name;
  std::uint64_t f32, bf16, f16, f64, e4m3, e5m2;
};

// One value of every kind, as bits of each float type.
constexpr Pattern kNan = {"NaN", 0x7FC00000, 0x7FC0, 0x7E00, 0x7FF8000000000000, 0x7F, 0x7E};
constexpr Pattern kOddNan = {"-NaN with a payload", 0xFFC12345, 0xFFC5, 0xFE15,
                             0xFFF8000000012345,    0xFF,       0xFF};
constexpr Pattern kSignallingNan = {"signalling NaN",   0x7F800001, 0x7F81, 0x7C01,
                                    0x7FF0000000000001, 0xFF,       0x7D};
constexpr Pattern kInfinity = {"+inf", 0x7F800000, 0x7F80, 0x7C00, 0x7FF0000000000000, kAbsent, 0x7C};
constexpr Pattern kMinusInfinity = {"-inf", 0xFF800000, 0xFF80, 0xFC00, 0xFFF0000000000000, kAbsent, 0xFC};
constexpr Pattern kOverflow = {"overflow", 0x7F800000, 0x7F80, 0x7C00, 0x7FF0000000000000, 0x7F, 0x7C};
constexpr Pattern kMinusOverflow = {"-overflow", 0xFF800000, 0xFF80, 0xFC00, 0xFFF0000000000000, 0x7F, 0xFC};
constexpr Pattern kZero = {"+0", 0, 0, 0, 0, 0, 0};
constexpr Pattern kMinusZero = {"-0", 0x80000000, 0x8000, 0x8000, 0x8000000000000000, 0x80, 0x80};
constexpr Pattern kOne = {"1", 0x3F800000, 0x3F80, 0x3C00, 0x3FF0000000000000, 0x38, 0x3C};
constexpr Pattern kMinusOne = {"-1", 0xBF800000, 0xBF80, 0xBC00, 0xBFF0000000000000, 0xB8, 0xBC};
constexpr Pattern kTiny = {"smallest subnormal", 1, 1, 1, 1, 1, 1};
constexpr Pattern kTwoTiny = {"two smallest subnormals", 2, 2, 2, 2, 2, 2};
constexpr Pattern kMinusTiny = {"-smallest subnormal", 0x80000001, 0x8001, 0x8001,
                                0x8000000000000001,    0x81,       0x81};
constexpr Pattern kLargest = {"largest", 0x7F7FFFFF, 0x7F7F, 0x7BFF, 0x7FEFFFFFFFFFFFFF, 0x7E, 0x7B};
constexpr Pattern kMinusLargest = {"-largest", 0xFF7FFFFF, 0xFF7F, 0xFBFF, 0xFFEFFFFFFFFFFFFF, 0xFE, 0xFB};

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
    {MUSTER_SUM, kLargest, kLargest, kOverflow},
    {MUSTER_SUM, kMinusLargest, kMinusLargest, kMinusOverflow},
    {MUSTER_SUM, kLargest, kMinusLargest, kZero},
    {MUSTER_SUM, kLargest, kTiny, kLargest},
    {MUSTER_PROD, kLargest, kMinusLargest, kMinusOverflow},
    {MUSTER_MIN, kMinusLargest, kMinusTiny, kMinusLargest},
    {MUSTER_MAX, kOddNan, kSignallingNan, kNan},
    {MUSTER_AVG, kTiny, kTiny, kTiny},
    {MUSTER_AVG, kMinusInfinity, kOne, kMinusInfinity},
    {MUSTER_PROD, kZero, kInfinity, kNan},
    {MUSTER_PROD, kMinusOne, kInfinity, kMinusInfinity},
    {MUSTER_PROD, kMinusOne, kZero, kMinusZero},
    {MUSTER_PREMUL_SUM, kMinusZero, kMinusZero, kMinusZero},
    {MUSTER_PREMUL_SUM, kSignallingNan, kOne, kNan},
};

std::uint64_t bits_of(const Pattern& pattern, muster_dtype dtype) {
  switch (dtype) {
    case MUSTER_F32:
      return pattern.f32;
    case MUSTER_BF16:
      return pattern.bf16;
    case MUSTER_F16:
      return pattern.f16;
    case MUSTER_F8_E4M3:
      return pattern.e4m3;
    case MUSTER_F8_E5M2:
      return pattern.e5m2;
    default:
      return pattern.f64;
  }
}

// Goal:   the rules of muster.h for NaN, infinities, signed zeros and subnormals hold in every lane of every
//         target.
// Method: the table above, spread over 37 equal elements so that full vectors and the rest are both seen.
TEST(SpecialValues, FollowTheTruthTableOnEverySimdTarget) {
  constexpr std::size_t kCount = 37;
  test::on_every_target([](const std::string&) {
    for (const muster_dtype dtype :
         {MUSTER_F32, MUSTER_BF16, MUSTER_F16, MUSTER_F64, MUSTER_F8_E4M3, MUSTER_F8_E5M2})
      for (const Row& row : kTruth) {
        if (bits_of(row.a, dtype) == kAbsent || bits_of(row.b, dtype) == kAbsent) continue;
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
//         even.
// Method: one source under scale 1 must come back as it was (NaN as the canonical one); under other scales,
//         products that fall between two elements, into the subnormals and past the largest must match
//         arithmetic in double.
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

// Goal:   a mean of small floats is infinite only if it is beyond the type, or its sum beyond f32.
TEST(SpecialValues, AMeanDividesBeforeItRounds) {
  const auto mean = [](muster_dtype dtype, std::uint32_t a, std::uint32_t b) {
    std::uint32_t result = 0;
    const std::byte* sources[] = {reinterpret_cast<const std::byte*>(&a),
                                  reinterpret_cast<const std::byte*>(&b)};
    reduce(dtype, MUSTER_AVG, sources, reinterpret_cast<std::byte*>(&result), 1, 1.0);
    return result;
  };
  EXPECT_EQ(mean(MUSTER_F16, 0x7BFF, 0x7BFF), 0x7BFFu) << "of the largest";
  EXPECT_EQ(mean(MUSTER_F8_E5M2, 0x7B, 0x7B), 0x7Bu);
  EXPECT_EQ(mean(MUSTER_F8_E4M3, 0x7E, 0x7E), 0x7Eu);
  EXPECT_EQ(mean(MUSTER_BF16, 0x7F7F, 0x7F7F), 0x7F80u) << "the sum is beyond f32";
  EXPECT_EQ(mean(MUSTER_F32, 0x7F7FFFFF, 0x7F7FFFFF), 0x7F800000u);
}

// Goal:   no pair of 8-bit floats, of whatever kinds, is reduced otherwise than the documented rules say.
// Method: all 65,536 pairs, in every operator, against plain scalar arithmetic.
TEST(SpecialValues, EveryPairOfEightBitFloatsFollowsTheRules) {
  std::vector<std::uint8_t> a(65536), b(65536);
  for (std::size_t i = 0; i < a.size(); ++i) {
    a[i] = static_cast<std::uint8_t>(i >> 8);
    b[i] = static_cast<std::uint8_t>(i);
  }
  const std::byte* sources[] = {reinterpret_cast<const std::byte*>(a.data()),
                                reinterpret_cast<const std::byte*>(b.data())};
  for (const muster_dtype dtype : {MUSTER_F8_E4M3, MUSTER_F8_E5M2})
    for (const muster_redop redop : test::kRedops) {
      std::vector<std::uint8_t> expected(a.size());
      test::scalar_reduce(dtype, redop, sources, reinterpret_cast<std::byte*>(expected.data()), a.size(),
                          0.3);
      test::on_every_target([&](const std::string&) {
        std::vector<std::uint8_t> actual(a.size());
        reduce(dtype, redop, sources, reinterpret_cast<std::byte*>(actual.data()), a.size(), 0.3);
        for (std::size_t i = 0; i < a.size(); ++i)
          ASSERT_EQ(actual[i], expected[i]) << dtype_name(dtype) << " " << test::redop_name(redop) << " of "
                                            << int{a[i]} << " and " << int{b[i]};
      });
    }
}

// Goal:   results of 8-bit floats round once, to nearest even, wherever between two elements they fall.
// Method: all 256 patterns under many scales: some that give midpoints exactly, and seeded ones of all sizes.
TEST(SpecialValues, EightBitFloatsRoundOnceToNearestEven) {
  std::vector<std::uint8_t> all(256);
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<std::uint8_t>(i);
  const std::byte* sources[] = {reinterpret_cast<const std::byte*>(all.data())};
  std::vector<double> scales = {1.0, -1.0, 1.0625, 1.125, 0.5, 0.25, 1.0 / 1024, 3.5, 0x1p-20, 0x1p120, 1e30};
  test::Random random(41);
  for (int i = 0; i < 1500; ++i) {
    const double fraction = 1.0 + static_cast<double>(random.below(1u << 24)) / (1u << 24);
    scales.push_back(std::ldexp(fraction, static_cast<int>(random.below(36)) - 20));
  }
  test::on_every_target([&](const std::string&) {
    for (const muster_dtype dtype : {MUSTER_F8_E4M3, MUSTER_F8_E5M2})
      for (const double scale : scales) {
        std::vector<std::uint8_t> expected(all.size()), actual(all.size());
        test::scalar_reduce(dtype, MUSTER_PREMUL_SUM, sources, reinterpret_cast<std::byte*>(expected.data()),
                            all.size(), scale);
        reduce(dtype, MUSTER_PREMUL_SUM, sources, reinterpret_cast<std::byte*>(actual.data()), all.size(),
               scale);
        ASSERT_EQ(actual, expected) << dtype_name(dtype) << ", scale " << scale;
      }
  });
}

}  // namespace
}  // namespace muster::math
