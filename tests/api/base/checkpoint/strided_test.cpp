#include "api/base/checkpoint/strided.hpp"

#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace muster::checkpoint {
namespace {

using ::testing::ElementsAre;

struct CopyRun {
  std::int64_t from, to, elements;
  friend bool operator==(const CopyRun&, const CopyRun&) = default;
};

std::vector<CopyRun> runs(std::size_t dims, const Index& length, const Index& from, const Index& to) {
  std::vector<CopyRun> found;
  each_run(dims, length, from, to, [&](std::int64_t a, std::int64_t b, std::int64_t n) {
    found.push_back({a, b, n});
    return true;
  });
  return found;
}

TEST(EachRun, ABlockWithoutGapsIsOneRun) {
  EXPECT_THAT(runs(2, {3, 4}, {4, 1}, {4, 1}), ElementsAre(CopyRun{0, 0, 12}));
}

TEST(EachRun, ColumnsOfAMatrixAreARunForEachRow) {
  EXPECT_THAT(runs(2, {3, 2}, {5, 1}, {2, 1}),
              ElementsAre(CopyRun{0, 0, 2}, CopyRun{5, 2, 2}, CopyRun{10, 4, 2}));
}

TEST(EachRun, ATransposedArrayGoesElementByElement) {
  EXPECT_THAT(runs(2, {2, 2}, {2, 1}, {1, 2}),
              ElementsAre(CopyRun{0, 0, 1}, CopyRun{1, 2, 1}, CopyRun{2, 1, 1}, CopyRun{3, 3, 1}));
}

TEST(EachRun, DimsOfOneElementNeedNoStride) {
  EXPECT_THAT(runs(3, {1, 4, 1}, {99, 1, 77}, {5, 1, 3}), ElementsAre(CopyRun{0, 0, 4}));
}

TEST(EachRun, AScalarIsOneElementAndNothingIsNone) {
  EXPECT_THAT(runs(0, {}, {}, {}), ElementsAre(CopyRun{0, 0, 1}));
  EXPECT_TRUE(runs(2, {3, 0}, {1, 1}, {1, 1}).empty());
}

TEST(EachRun, EndsWhereTheBodySaysSo) {
  int calls = 0;
  EXPECT_FALSE(
      each_run(1, {3}, {2}, {1}, [&](std::int64_t, std::int64_t, std::int64_t) { return ++calls < 2; }));
  EXPECT_EQ(calls, 2);
}

}  // namespace
}  // namespace muster::checkpoint
