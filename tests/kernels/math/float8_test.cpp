#include "kernels/math/float8.hpp"

#include "tests/kernels/math/scalar_reduce.hpp"
#include "tests/kernels/math/values.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include <gtest/gtest.h>

namespace muster::math {
namespace {

// One of the two formats, as these tests see it.
struct E4m3 {
  static constexpr const test::Fields& fields = test::kF8E4m3;
  static constexpr double kLargest = 448.0;
  static constexpr double kBeyond = 480.0;  // the number that would come next
  static constexpr std::uint8_t kNan = 0x7F;
  static constexpr std::uint8_t kOverflow = 0x7F;
  static constexpr std::uint8_t kMinusOverflow = 0x7F;
  static float decode(std::uint8_t bits) { return to_float(F8E4m3{bits}); }
  template<class T>
  static std::uint8_t encode(T x) {
    return to_f8_e4m3(x).bits;
  }
};
struct E5m2 {
  static constexpr const test::Fields& fields = test::kF8E5m2;
  static constexpr double kLargest = 57344.0;
  static constexpr double kBeyond = 65536.0;
  static constexpr std::uint8_t kNan = 0x7E;
  static constexpr std::uint8_t kOverflow = 0x7C;
  static constexpr std::uint8_t kMinusOverflow = 0xFC;
  static float decode(std::uint8_t bits) { return to_float(F8E5m2{bits}); }
  template<class T>
  static std::uint8_t encode(T x) {
    return to_f8_e5m2(x).bits;
  }
};

template<class Format>
class Float8 : public testing::Test {
 protected:
  // The values from zero up, each at its pattern, and after them the number that would be next.
  static std::vector<double> ladder() {
    std::vector<double> values;
    for (std::uint32_t i = 0; i < Format::fields.overflow(); ++i)
      values.push_back(test::decode_small(i, Format::fields));
    values.push_back(Format::kBeyond);
    return values;
  }

  // By search: the nearest rung, of two equally near ones the one of even pattern. The differences that are
  // compared are exact where they could be equal.
  static std::uint8_t nearest(double x) {
    static const std::vector<double> kLadder = ladder();
    if (std::isnan(x)) return Format::kNan;
    const double a = std::min(std::fabs(x), 2 * Format::kBeyond);
    const auto above = std::lower_bound(kLadder.begin(), kLadder.end(), a);
    auto rung = static_cast<std::size_t>(above - kLadder.begin());
    if (above == kLadder.end()) {
      rung = kLadder.size() - 1;
    } else if (*above != a) {
      const double up = *above - a;
      const double down = a - *(above - 1);
      if (down < up || (down == up && rung % 2 == 1)) --rung;
    }
    if (rung == kLadder.size() - 1) return std::signbit(x) ? Format::kMinusOverflow : Format::kOverflow;
    return static_cast<std::uint8_t>(rung | (std::signbit(x) ? 0x80 : 0));
  }

  template<class T>
  static void expect_nearest(T x) {
    ASSERT_EQ(int{Format::encode(x)}, int{nearest(static_cast<double>(x))}) << std::hexfloat << x;
    ASSERT_EQ(int{Format::encode(-x)}, int{nearest(-static_cast<double>(x))}) << std::hexfloat << -x;
  }
};

using Formats = testing::Types<E4m3, E5m2>;
TYPED_TEST_SUITE(Float8, Formats);

TYPED_TEST(Float8, HasTheValuesOfItsFields) {
  double largest = 0.0;
  for (std::uint32_t i = 0; i < 256; ++i) {
    const double expected = test::decode_small(i, TypeParam::fields);
    const float actual = TypeParam::decode(static_cast<std::uint8_t>(i));
    if (std::isnan(expected)) {
      EXPECT_TRUE(std::isnan(actual)) << i;
      continue;
    }
    EXPECT_EQ(actual, expected) << i;
    EXPECT_EQ(std::signbit(actual), i >= 128) << i;
    if (std::isfinite(actual)) largest = std::max<double>(largest, actual);
  }
  EXPECT_EQ(largest, TypeParam::kLargest);
}

TYPED_TEST(Float8, GivesEveryPatternBackAndEveryNanAsTheCanonicalOne) {
  for (std::uint32_t i = 0; i < 256; ++i) {
    const float value = TypeParam::decode(static_cast<std::uint8_t>(i));
    const std::uint32_t expected = std::isnan(value) ? TypeParam::kNan : i;
    EXPECT_EQ(TypeParam::encode(value), expected);
    EXPECT_EQ(TypeParam::encode(static_cast<double>(value)), expected);
  }
  for (const std::uint32_t bits : {0x7F800001u, 0x7FC00000u, 0x7FFFFFFFu, 0xFF800001u, 0xFFC12345u})
    EXPECT_EQ(TypeParam::encode(std::bit_cast<float>(bits)), TypeParam::kNan) << std::hex << bits;
}

// Goal:   ties go to the even pattern, and the least step off a tie goes to the nearer one, also where
//         subnormals begin and at the largest value.
TYPED_TEST(Float8, RoundsMidpointsToEvenAndTheirNeighboursToTheNearest) {
  const std::vector<double> values = this->ladder();
  for (std::size_t i = 0; i + 1 < values.size(); ++i) {
    const double middle = (values[i] + values[i + 1]) / 2;
    const float single = static_cast<float>(middle);
    ASSERT_EQ(single, middle) << "midpoints are floats";
    this->expect_nearest(single);
    this->expect_nearest(std::nextafter(single, 0.0f));
    this->expect_nearest(std::nextafter(single, 1e9f));
    this->expect_nearest(middle);
    this->expect_nearest(std::nextafter(middle, 0.0));
    this->expect_nearest(std::nextafter(middle, 1e9));
  }
}

// Goal:   every size of float rounds right, infinity and the smallest subnormal included.
// Method: every 4093rd pattern of a float (a prime, so that all low bits are seen), and seeded doubles.
TYPED_TEST(Float8, RoundsADenseSampleOfFloatsToTheNearest) {
  for (std::uint32_t bits = 0; bits < 0x7F800000u; bits += 4093)
    this->expect_nearest(std::bit_cast<float>(bits));
  for (const float edge : {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::max(),
                           std::numeric_limits<float>::denorm_min()})
    this->expect_nearest(edge);
  test::Random random(8);
  for (int i = 0; i < 100000; ++i)
    this->expect_nearest(std::ldexp(1.0 + static_cast<double>(random.below(1u << 20)) / (1u << 20),
                                    static_cast<int>(random.below(50)) - 30));
  this->expect_nearest(1e300);
  this->expect_nearest(1e-300);
}

TEST(Float8, OverflowsWhereRoundingSays) {
  EXPECT_EQ(to_f8_e4m3(464.0f).bits, 0x7E) << "the tie goes to the even pattern, 448";
  EXPECT_EQ(to_f8_e4m3(std::nextafter(464.0f, 500.0f)).bits, 0x7F) << "NaN: there is no infinity";
  EXPECT_EQ(to_f8_e4m3(-std::numeric_limits<float>::infinity()).bits, 0x7F) << "and it has no sign";
  EXPECT_EQ(to_f8_e5m2(std::nextafter(61440.0f, 0.0f)).bits, 0x7B) << "57344";
  EXPECT_EQ(to_f8_e5m2(61440.0f).bits, 0x7C) << "the tie goes to the even pattern, infinity";
  EXPECT_EQ(to_f8_e5m2(-1e30f).bits, 0xFC);
  EXPECT_EQ(to_f8_e4m3(-0.0f).bits, 0x80);
  EXPECT_EQ(to_f8_e5m2(-0x1p-17f).bits, 0x80) << "half of the smallest goes to even, with its sign";
}

// Goal:   a double rounds once: through the nearest float it would round to a tie and then away.
TEST(Float8, RoundsADoubleOnce) {
  const double above_tie = 1.0625 + 0x1p-40;  // between 1 and 1.125 of e4m3
  EXPECT_EQ(to_f8_e4m3(above_tie).bits, 0x39);
  EXPECT_EQ(to_f8_e4m3(static_cast<float>(above_tie)).bits, 0x38) << "what rounding twice gives";
}

static_assert(to_f8_e4m3(1.0f).bits == 0x38 && to_f8_e5m2(1.0f).bits == 0x3C);
static_assert(to_float(F8E4m3{0x7E}) == 448.0f && to_float(F8E5m2{0x7B}) == 57344.0f);

}  // namespace
}  // namespace muster::math
