#include "api/base/layout/split.hpp"

#include <limits>
#include <numeric>
#include <vector>

#include <gtest/gtest.h>

namespace muster {
namespace {

using Interval = Split::Interval;

using Numbers = std::vector<std::int64_t>;

constexpr std::int64_t kItemsMost = std::numeric_limits<std::int64_t>::max();

// How many items each rank has.
Numbers sizes(const Split& split, std::int64_t items, std::int64_t ranks) {
  EXPECT_TRUE(split.check(items, ranks).ok()) << split.check(items, ranks).text();
  Numbers found;
  for (std::int64_t rank = 0; rank < ranks; ++rank) {
    std::int64_t size = 0;
    for (const Interval& interval : split.intervals(items, ranks, rank)) size += interval.length;
    found.push_back(size);
  }
  return found;
}

std::string refusal(const Split& split, std::int64_t items, std::int64_t ranks) {
  const Status status = split.check(items, ranks);
  EXPECT_EQ(status.code(), Code::kBadArgument);
  return status.message();
}

// Goal:   case F8: 5 rows over 4 ranks are 2, 2, 1 and 0, and 1 over 2 is 1 and 0.
TEST(Split, CeilLeavesTheLastRanksFewItemsOrNone) {
  EXPECT_EQ(sizes(Split::ceil(), 5, 4), (Numbers{2, 2, 1, 0}));
  EXPECT_EQ(sizes(Split::ceil(), 1, 2), (Numbers{1, 0}));
  EXPECT_EQ(sizes(Split::ceil(), 0, 3), (Numbers{0, 0, 0}));
}

// Goal:   case T4: a vocabulary of 10 among 3 and a head of 129 columns among 4, by either rule.
TEST(Split, CeilAndBalancedDifferWhereItemsAreLeftOver) {
  EXPECT_EQ(sizes(Split::ceil(), 10, 3), (Numbers{4, 4, 2}));
  EXPECT_EQ(sizes(Split::balanced(), 10, 3), (Numbers{4, 3, 3}));
  EXPECT_EQ(sizes(Split::ceil(), 129, 4), (Numbers{33, 33, 33, 30}));
  EXPECT_EQ(sizes(Split::balanced(), 129, 4), (Numbers{33, 32, 32, 32}));
}

// Goal:   case T4: 6 heads of keys and values among 4, and 8 among 16, each of 64 columns.
TEST(Split, AlignedGivesWholeHeadsAndToSomeRanksNone) {
  EXPECT_EQ(sizes(Split::aligned(64), 6 * 64, 4), (Numbers{128, 128, 64, 64}));
  Numbers expected(16, 0);
  std::fill_n(expected.begin(), 8, 64);
  EXPECT_EQ(sizes(Split::aligned(64), 8 * 64, 16), expected);
}

TEST(Split, AlignedGivesTheLastRankWhatIsNoWholeUnit) {
  EXPECT_EQ(sizes(Split::aligned(4), 11, 4), (Numbers{4, 4, 0, 3}));
  EXPECT_EQ(Split::aligned(4).intervals(11, 4, 3), (std::vector<Interval>{{8, 3}}));
  EXPECT_EQ(sizes(Split::aligned(4), 3, 2), (Numbers{0, 3}));
}

TEST(Split, GivenLengthsAreTaken) {
  const Split split = Split::given({0, 5, 2, 0});
  EXPECT_EQ(sizes(split, 7, 4), (Numbers{0, 5, 2, 0}));
  EXPECT_EQ(split.intervals(7, 4, 1), (std::vector<Interval>{{0, 5}}));
  EXPECT_EQ(split.intervals(7, 4, 2), (std::vector<Interval>{{5, 2}}));
  EXPECT_TRUE(split.intervals(7, 4, 3).empty());
}

// Goal:   case T11: q, k and v of 8, 4 and 4 rows among 2.
TEST(Split, FusedDividesEachTensorByItself) {
  const Split split = Split::fused(Split::balanced(), {8, 4, 4});
  ASSERT_TRUE(split.check(16, 2).ok());
  EXPECT_EQ(split.intervals(16, 2, 0), (std::vector<Interval>{{0, 4}, {8, 2}, {12, 2}}));
  EXPECT_EQ(split.intervals(16, 2, 1), (std::vector<Interval>{{4, 4}, {10, 2}, {14, 2}}));
}

TEST(Split, FusedPartsThatTouchAreOneInterval) {
  EXPECT_EQ(Split::fused(Split::ceil(), {8, 4, 4}).intervals(16, 1, 0), (std::vector<Interval>{{0, 16}}));
  // One item of each tensor: rank 0 has all of them.
  EXPECT_EQ(Split::fused(Split::ceil(), {1, 0, 1}).intervals(2, 2, 0), (std::vector<Interval>{{0, 2}}));
  EXPECT_TRUE(Split::fused(Split::ceil(), {1, 0, 1}).intervals(2, 2, 1).empty());
}

TEST(Split, DividesAsManyItemsAsThereCanBe) {
  for (const Split& split :
       {Split::ceil(), Split::balanced(), Split::aligned(kItemsMost), Split::aligned(1 << 20)})
    for (const std::int64_t ranks : {std::int64_t{1}, std::int64_t{3}, Split::kRanksMax}) {
      const Numbers found = sizes(split, kItemsMost, ranks);
      EXPECT_EQ(std::accumulate(found.begin(), found.end(), std::int64_t{0}), kItemsMost) << split.name();
      EXPECT_GE(*std::min_element(found.begin(), found.end()), 0) << split.name();
    }
}

TEST(Split, RefusesAGrainBelowOne) {
  EXPECT_EQ(refusal(Split::aligned(0), 8, 2), "aligned(0): the grain is 0; it must be 1 or more");
  EXPECT_EQ(refusal(Split::aligned(-4), 8, 2), "aligned(-4): the grain is -4; it must be 1 or more");
}

TEST(Split, RefusesGivenLengthsThatDoNotFit) {
  EXPECT_EQ(refusal(Split::given({4, 4}), 8, 3), "2 given lengths for 3 ranks; there must be one for each");
  EXPECT_EQ(refusal(Split::given({9, -1}), 8, 2),
            "the given lengths add up to more than the 8 items: length 0, which is 9, ends beyond them");
  EXPECT_EQ(refusal(Split::given({4, -1}), 8, 2), "given length 1 is -1; it must be 0 or more");
  EXPECT_EQ(refusal(Split::given({4, 3}), 8, 2), "the given lengths add up to 7, but there are 8 items");
  EXPECT_EQ(refusal(Split::given({4, kItemsMost, kItemsMost}), 8, 3),
            fmt::format(
                "the given lengths add up to more than the 8 items: length 1, which is {}, ends beyond them",
                kItemsMost));
}

TEST(Split, RefusesFusedTensorsThatAreNotTheDim) {
  EXPECT_EQ(refusal(Split::fused(Split::ceil(), {8, 4}), 16, 2),
            "the fused lengths add up to 12, but there are 16 items");
  EXPECT_EQ(refusal(Split::fused(Split::ceil(), {}), 16, 2), "0 fused lengths; 1 to 1024 are possible");
  EXPECT_EQ(refusal(Split::fused(Split::ceil(), Numbers(1025, 1)), 1025, 2),
            "1025 fused lengths; 1 to 1024 are possible");
}

TEST(Split, RefusesAFusedRuleThatIsFusedOrGiven) {
  EXPECT_EQ(refusal(Split::fused(Split::given({8, 8}), {8, 8}), 16, 2),
            "fused(given(8, 8); 8, 8): each fused tensor is divided by ceil, balanced or aligned");
  EXPECT_EQ(refusal(Split::fused(Split::fused(Split::ceil(), {8, 8}), {16}), 16, 2),
            "fused(ceil; 16): each fused tensor is divided by ceil, balanced or aligned");
}

TEST(Split, RefusesItemsAndRanksThatCannotBe) {
  EXPECT_EQ(refusal(Split::ceil(), -1, 2), "-1 items; there must be 0 or more");
  EXPECT_EQ(refusal(Split::ceil(), 8, 0), "0 ranks; 1 to 65536 are possible");
  EXPECT_EQ(refusal(Split::ceil(), 8, 65537), "65537 ranks; 1 to 65536 are possible");
}

TEST(Split, SaysItsRule) {
  EXPECT_EQ(Split::ceil().name(), "ceil");
  EXPECT_EQ(Split::fused(Split::aligned(64), {512, 128, 128}).name(), "fused(aligned(64); 512, 128, 128)");
  EXPECT_EQ(Split::given(Numbers(11, 3)).name(), "given(3, 3, 3, 3, 3, 3, 3, 3, … 3 more)");
}

TEST(Intervals, ThatTouchBecomeOne) {
  std::vector<Interval> intervals;
  append(intervals, {2, 3});
  append(intervals, {5, 0});
  append(intervals, {5, 1});
  append(intervals, {7, 2});
  EXPECT_EQ(intervals, (std::vector<Interval>{{2, 4}, {7, 2}}));
}

}  // namespace
}  // namespace muster
