#include "api/base/shard/divide.hpp"

#include <vector>

#include <gtest/gtest.h>

namespace muster::shard {
namespace {

constexpr muster_dtype kWide[] = {MUSTER_F32, MUSTER_BF16};

GradientDivision premul(double before, double after) {
  return {.scatter = MUSTER_PREMUL_SUM, .reduce = MUSTER_SUM, .scale = 1 / before, .after = after};
}

TEST(GradientDivisions, OfOneRankAreNone) {
  for (const muster_dtype dtype : {MUSTER_F32, MUSTER_BF16, MUSTER_F16, MUSTER_F8_E4M3})
    EXPECT_EQ(gradient_division(dtype, 1, 1, 0), GradientDivision{});
}

// Section 2.5 of the reference: what f32 and bf16 do by themselves.
TEST(GradientDivisions, OfWideTypesAreAverages) {
  for (const muster_dtype dtype : kWide) {
    EXPECT_EQ(gradient_division(dtype, 8, 1, 0), (GradientDivision{.scatter = MUSTER_AVG}));
    EXPECT_EQ(gradient_division(dtype, 4, 2, 0),
              (GradientDivision{.scatter = MUSTER_AVG, .reduce = MUSTER_AVG}));
    EXPECT_EQ(gradient_division(dtype, 4, 2, 8),
              (GradientDivision{.scatter = MUSTER_AVG, .reduce = MUSTER_AVG}));
  }
}

TEST(GradientDivisions, ByTheShardsAverageAmongThemAlone) {
  for (const muster_dtype dtype : kWide)
    EXPECT_EQ(gradient_division(dtype, 4, 2, 4), (GradientDivision{.scatter = MUSTER_AVG}));
}

TEST(GradientDivisions, ByAnyOtherNumberScaleInTheFirstSum) {
  for (const muster_dtype dtype : kWide) {
    EXPECT_EQ(gradient_division(dtype, 4, 2, 2), premul(2, 1));
    EXPECT_EQ(gradient_division(dtype, 4, 2, 3), premul(3, 1));
    EXPECT_EQ(gradient_division(dtype, 8, 1, 0.5), premul(0.5, 1));
    EXPECT_EQ(gradient_division(dtype, 8, 1, 64), premul(64, 1));
  }
}

TEST(GradientDivisions, ByOneAreSums) {
  for (const muster_dtype dtype : {MUSTER_F32, MUSTER_BF16, MUSTER_F16})
    EXPECT_EQ(gradient_division(dtype, 4, 2, 1), GradientDivision{});
}

struct NarrowCase {
  std::int64_t ranks;
  double before, after;
};

// Goal:   case F9, and the list of section 2.5: f16 divides in part before the sum.
TEST(GradientDivisions, OfNarrowTypesAreHalfBeforeTheSumAndHalfAfterIt) {
  constexpr NarrowCase kCases[] = {{2, 2, 1}, {3, 2, 1.5}, {4, 2, 2},  {6, 4, 1.5},
                                   {8, 4, 2}, {16, 4, 4},  {64, 8, 8}, {128, 16, 8}};
  for (const NarrowCase& c : kCases) {
    EXPECT_EQ(gradient_division(MUSTER_F16, c.ranks, 1, 0), premul(c.before, c.after)) << c.ranks;
    EXPECT_EQ(gradient_division(MUSTER_F8_E5M2, c.ranks, 1, 0), premul(c.before, c.after)) << c.ranks;
    EXPECT_EQ(gradient_division(MUSTER_F16, 2, 1, static_cast<double>(c.ranks)), premul(c.before, c.after));
  }
  EXPECT_EQ(gradient_division(MUSTER_F16, 4, 2, 0), premul(4, 2));
}

// Goal:   case F9: 8 ranks whose gradients are 30000 each; 240000 is infinite in f16.
TEST(GradientDivisions, KeepSumsOfF16Finite) {
  const GradientDivision division = gradient_division(MUSTER_F16, 8, 1, 0);
  const double sum = 8 * 30000 * division.scale;
  EXPECT_LE(sum, 65504);
  EXPECT_EQ(sum / division.after, 30000);
}

// Goal:   case F24: one shard, so no reduce-scatter; the all-reduce does what it would have done.
TEST(GradientDivisions, WithoutShardsAreThoseOfTheAllReduce) {
  EXPECT_EQ(gradient_division(MUSTER_F32, 1, 8, 0), (GradientDivision{.reduce = MUSTER_AVG}));
  EXPECT_EQ(gradient_division(MUSTER_F32, 1, 8, 4),
            (GradientDivision{.reduce = MUSTER_PREMUL_SUM, .scale = 0.25}));
  EXPECT_EQ(gradient_division(MUSTER_F16, 1, 8, 0),
            (GradientDivision{.reduce = MUSTER_PREMUL_SUM, .scale = 0.25, .after = 2}));
}

TEST(GradientDivisions, OfOneRankByANumberComeAfter) {
  for (const muster_dtype dtype : {MUSTER_F32, MUSTER_BF16, MUSTER_F16})
    EXPECT_EQ(gradient_division(dtype, 1, 1, 6), (GradientDivision{.after = 6}));
}

// Goal:   all ranks' gradients are divided by the divisor, whichever way it is done.
// Method: carry out each division on gradients of 1, and compare with their sum over the divisor.
TEST(GradientDivisions, DivideTheSumByTheDivisor) {
  for (const muster_dtype dtype : {MUSTER_F32, MUSTER_BF16, MUSTER_F16, MUSTER_F64})
    for (const std::int64_t shards : {1, 2, 3, 4, 8})
      for (const std::int64_t replicas : {1, 2, 5})
        for (const double divisor : {0.0, 0.5, 1.0, 2.0, 3.0, 4.0, 6.0, 8.0, 40.0}) {
          const GradientDivision division = gradient_division(dtype, shards, replicas, divisor);
          const auto carried = [&](muster_redop redop, std::int64_t ranks, double value) {
            if (ranks == 1) return value;  // nothing runs
            const double sum = value * static_cast<double>(ranks);
            return redop == MUSTER_AVG ? value : redop == MUSTER_PREMUL_SUM ? sum * division.scale : sum;
          };
          const double scattered = carried(division.scatter, shards, 1);
          const double all = static_cast<double>(shards * replicas);
          EXPECT_DOUBLE_EQ(carried(division.reduce, replicas, scattered) / division.after,
                           all / (divisor == 0 ? all : divisor))
              << dtype << " " << shards << " " << replicas << " " << divisor;
        }
}

}  // namespace
}  // namespace muster::shard
