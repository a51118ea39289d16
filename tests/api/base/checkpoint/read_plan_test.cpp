#include "api/base/checkpoint/read_plan.hpp"

#include "tests/api/base/checkpoint/planned.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace muster::checkpoint {
namespace {

using test::members_of;
using test::rows;
using ::testing::ElementsAre;

// One read: rows [first, first + rows) of what saved rank `file` has.
struct Read {
  std::size_t file;
  std::int64_t first, rows;
  friend bool operator==(const Read&, const Read&) = default;
};

std::vector<Read> reads(const CheckpointRecord& record, const Layout& layout, std::int64_t rank) {
  std::vector<Read> found;
  const SavedTensor& tensor = record.tensors[0];
  for (const Slice& slice : plan_read(tensor, layout.pieces(rank)))
    found.push_back({tensor.boxes[slice.box].file, slice.within[0], slice.part.length[0]});
  return found;
}

// Goal:   case C1: 10 rows saved by 4 ranks [3, 3, 3, 1] and loaded by 3 [4, 4, 2]: two reads a rank.
TEST(ReadPlan, TenRowsFromFourRanksToThree) {
  const auto plan = plan_write(members_of("w", rows({10, 4}, 4)), 0);
  ASSERT_TRUE(plan);
  const Layout three = rows({10, 4}, 3);
  EXPECT_THAT(reads(plan->record, three, 0), ElementsAre(Read{0, 0, 3}, Read{1, 0, 1}));
  EXPECT_THAT(reads(plan->record, three, 1), ElementsAre(Read{1, 1, 2}, Read{2, 0, 2}));
  EXPECT_THAT(reads(plan->record, three, 2), ElementsAre(Read{2, 2, 1}, Read{3, 0, 1}));
}

TEST(ReadPlan, WhatARankHasItselfIsOneWholeBox) {
  const Layout layout = rows({10, 4}, 4);
  const auto plan = plan_write(members_of("w", layout), 0);
  ASSERT_TRUE(plan);
  EXPECT_THAT(reads(plan->record, layout, 3), ElementsAre(Read{3, 0, 1}));
}

// A box that is cut along both dims: where it lies in the saved box, and where it goes.
TEST(ReadPlan, ACornerOfABox) {
  const auto plan = plan_write(members_of("w", rows({4, 6}, 1)), 0);
  ASSERT_TRUE(plan);
  const Layout quarters =
      *Layout::make(std::vector<std::int64_t>{4, 6},
                    {Layout::Axis{"a", 2, Placement::shard(0)}, Layout::Axis{"b", 2, Placement::shard(1)}});
  const auto slices = plan_read(plan->record.tensors[0], quarters.pieces(3));
  ASSERT_EQ(slices.size(), 1U);
  EXPECT_EQ(slices[0].within, (Index{2, 3}));
  EXPECT_EQ(slices[0].put, (Index{}));
  EXPECT_EQ(slices[0].part, (Box{2, {2, 3}, {2, 3}}));
}

TEST(ReadPlan, ARankWithNothingReadsNothing) {
  const auto plan = plan_write(members_of("w", rows({2, 4}, 2)), 0);
  ASSERT_TRUE(plan);
  EXPECT_TRUE(reads(plan->record, rows({2, 4}, 3), 2).empty());
}

TEST(ReadPlan, OtherShapesAndDtypesAreNamedBoth) {
  const SavedTensor saved{"w", MUSTER_F32, 2, {4, 6}};
  const std::int64_t shape[] = {4, 6}, other[] = {6, 4};
  EXPECT_TRUE(check_same(saved, MUSTER_F32, shape).ok());
  EXPECT_EQ(check_same(saved, MUSTER_F32, other).message(),
            "tensor \"w\" is saved with shape [4, 6], but the layout has shape [6, 4]");
  EXPECT_EQ(check_same(saved, MUSTER_BF16, shape).message(),
            "tensor \"w\" is saved as f32, but the array has dtype bf16");
}

}  // namespace
}  // namespace muster::checkpoint
