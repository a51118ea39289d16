#include "api/base/checkpoint/saved.hpp"

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
