#include "api/base/layout/box.hpp"

#include <limits>

#include <gtest/gtest.h>

namespace muster {
namespace {

constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();

TEST(Box, CountsItsElements) {
  EXPECT_EQ((Box{2, {3, 4}, {5, 7}}).elements(), 35);
  EXPECT_EQ((Box{8, {}, {2, 2, 2, 2, 2, 2, 2, 2}}).elements(), 256);
  EXPECT_EQ((Box{1, {}, {kMost}}).elements(), kMost);
}

TEST(Box, OfNoDimIsOneElement) {
  EXPECT_EQ(Box{}.elements(), 1);
}

TEST(Box, IsEmptyIfOneLengthIsZeroHoweverLargeTheOthersAre) {
  EXPECT_EQ((Box{3, {}, {4, 0, 4}}).elements(), 0);
  EXPECT_EQ((Box{3, {}, {kMost, kMost, 0}}).elements(), 0);
}

TEST(Box, ShapesAreWrittenAsLists) {
  EXPECT_EQ(to_text(std::array<std::int64_t, 2>{7, 9}), "[7, 9]");
  EXPECT_EQ(to_text({}), "[]");
}

}  // namespace
}  // namespace muster
