#include "api/base/checkpoint/saved.hpp"

#include <algorithm>
#include <cmath>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace muster::checkpoint {
namespace {

using ::testing::HasSubstr;

SavedTensor tensor(std::vector<Box> boxes) {
  SavedTensor made{"w", MUSTER_F32, 2, {4, 6}};
  for (const Box& box : boxes) made.boxes.push_back({box, 0, 0, {}});
  return made;
}

TEST(CheckBoxes, PassesWhatIsTheTensor) {
  EXPECT_TRUE(check_boxes(tensor({{2, {0, 0}, {4, 6}}})).ok());
  EXPECT_TRUE(check_boxes(tensor({{2, {0, 0}, {4, 2}}, {2, {0, 2}, {4, 4}}})).ok());
  EXPECT_TRUE(check_boxes(SavedTensor{"none", MUSTER_F32, 2, {0, 5}}).ok());
  EXPECT_TRUE(check_boxes(SavedTensor{"scalar", MUSTER_F32, 0, {}, {{Box{}, 0, 0, {}}}}).ok());
}

// Goal:   case C4: a box that is missing, or that overlaps another one, is refused with the tensor's name.
TEST(CheckBoxes, NamesTheTensorOfAnOverlapAndOfAHole) {
  const Status overlap = check_boxes(tensor({{2, {0, 0}, {3, 6}}, {2, {2, 0}, {2, 6}}}));
  EXPECT_EQ(overlap.code(), Code::kBadArgument);
  EXPECT_THAT(overlap.message(), HasSubstr("\"w\""));
  EXPECT_THAT(overlap.message(), HasSubstr("overlap"));
  const Status hole = check_boxes(tensor({{2, {0, 0}, {4, 5}}}));
  EXPECT_THAT(hole.message(), HasSubstr("\"w\""));
  EXPECT_THAT(hole.message(), HasSubstr("a part is missing"));
  // Overlap and hole that make up for each other in number.
  EXPECT_FALSE(check_boxes(tensor({{2, {0, 0}, {2, 6}}, {2, {1, 0}, {2, 6}}})).ok());
}

// Boxes of one element, in all of 8 dims.
SavedTensor cubes(std::int64_t side) {
  SavedTensor made{"w", MUSTER_U8, 8, {}};
  std::fill_n(made.shape.begin(), 8, side);
  const auto count = static_cast<std::int64_t>(std::pow(side, 8) + 0.5);
  for (std::int64_t i = 0; i < count; ++i) {
    Box box{8, {}, {}};
    std::fill_n(box.length.begin(), 8, 1);
    for (std::int64_t dim = 0, rest = i; dim < 8; ++dim, rest /= side)
      box.offset[static_cast<std::size_t>(dim)] = rest % side;
    made.boxes.push_back({box, 0, 0, {}});
  }
  return made;
}

// The five boxes of a pinwheel, which no line parts.
std::vector<Box> pinwheel(std::int64_t row, std::int64_t column) {
  return {{2, {row, column}, {1, 2}},
          {2, {row, column + 2}, {2, 1}},
          {2, {row + 2, column + 1}, {1, 2}},
          {2, {row + 1, column}, {2, 1}},
          {2, {row + 1, column + 1}, {1, 1}}};
}

TEST(CheckBoxes, BoxesMayLieSideBySideInEachDim) {
  SavedTensor made = cubes(4);
  EXPECT_TRUE(check_boxes(made).ok());
  made.boxes.back() = made.boxes.front();
  EXPECT_THAT(check_boxes(made).message(), HasSubstr("overlap"));
}

TEST(CheckBoxes, BoxesMayLieSoThatNoLinePartsThem) {
  SavedTensor made{"w", MUSTER_F32, 2, {3, 3}};
  for (const Box& box : pinwheel(0, 0)) made.boxes.push_back({box, 0, 0, {}});
  EXPECT_TRUE(check_boxes(made).ok());
  made.boxes[0].box.length[1] = 3;
  EXPECT_THAT(check_boxes(made).message(), HasSubstr("overlap"));
}

// Goal: a stranger's metadata cannot keep a reader busy.
TEST(CheckBoxes, RefusesManyBoxesThatDoNotComeApart) {
  SavedTensor made{"w", MUSTER_U8, 2, {20'000, 20'000}};
  for (std::int64_t i = 0; i < 10'000; ++i) made.boxes.push_back({{2, {i, i}, {2, 2}}, 0, 0, {}});
  EXPECT_THAT(check_boxes(made).message(), HasSubstr("in no order"));
}

TEST(CheckBoxes, RefusesWhatIsOutside) {
  for (const Box& box : {Box{2, {0, 0}, {5, 6}}, Box{2, {-1, 0}, {4, 6}}, Box{2, {0, 1}, {4, 6}},
                         Box{2, {0, 0}, {4, 0}}, Box{1, {0}, {4}}, Box{2, {1LL << 62, 0}, {1LL << 62, 6}}})
    EXPECT_THAT(check_boxes(tensor({box})).message(), HasSubstr("not in its shape"));
}

TEST(BytesOf, RefusesWhatDoesNotFit) {
  EXPECT_EQ(*bytes_of(SavedTensor{"a", MUSTER_F64, 1, {1LL << 59}}), 1ULL << 62);
  EXPECT_FALSE(bytes_of(SavedTensor{"a", MUSTER_F64, 1, {1LL << 60}}));
  EXPECT_FALSE(bytes_of(SavedTensor{"a", MUSTER_U8, 3, {1LL << 62, 0, 1LL << 62}}));
  EXPECT_FALSE(bytes_of(SavedTensor{"a", 99, 1, {1}}));
  EXPECT_FALSE(bytes_of(SavedTensor{"a", MUSTER_U8, 1, {-1}}));
}

}  // namespace
}  // namespace muster::checkpoint
