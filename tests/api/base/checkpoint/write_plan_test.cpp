#include "api/base/checkpoint/write_plan.hpp"

#include "tests/api/base/checkpoint/planned.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace muster::checkpoint {
namespace {

using test::members_of;
using test::own_tensor;
using test::rows;
using test::strided_rows;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Goal:   case C2 (ours): replicas share the writing: what several have, the one with the fewest bytes
//         writes.
TEST(WritePlan, ReplicasShareTheWriting) {
  const Layout all =
      *Layout::make(std::vector<std::int64_t>{8}, {Layout::Axis{"r", 3, Placement::replicate()}});
  std::vector<std::vector<OwnTensor>> members(3);
  for (std::int64_t rank = 0; rank < 3; ++rank)
    for (const char* name : {"a", "b", "c", "d"})
      members[static_cast<std::size_t>(rank)].push_back(own_tensor(name, all, rank));
  const auto plan = plan_write(members, 7);
  ASSERT_TRUE(plan) << plan.error().message();
  EXPECT_EQ(plan->record.step, 7U);
  EXPECT_THAT(plan->writers, ElementsAre(0, 1, 2));
  EXPECT_THAT(boxes_of(*plan, 0),
              ElementsAre(WritePlan::BoxIndex{0, 0}, WritePlan::BoxIndex{3, 0}));  // a tie goes to the lowest
  EXPECT_THAT(boxes_of(*plan, 1), ElementsAre(WritePlan::BoxIndex{1, 0}));
  EXPECT_EQ(plan->record.files[0].bytes, 64U);
  EXPECT_EQ(plan->record.tensors[3].boxes[0].at, 32U);
}

// Goal: a large box makes its writer the last choice for the next ones.
TEST(WritePlan, CountsBytesAndNotBoxes) {
  const auto replicated = [](std::int64_t n) {
    return *Layout::make(std::vector<std::int64_t>{n}, {Layout::Axis{"r", 2, Placement::replicate()}});
  };
  std::vector<std::vector<OwnTensor>> members(2);
  for (std::int64_t rank = 0; rank < 2; ++rank)
    members[static_cast<std::size_t>(rank)] = {own_tensor("a", replicated(100), rank),
                                               own_tensor("b", replicated(30), rank),
                                               own_tensor("c", replicated(30), rank)};
  const auto plan = plan_write(members, 0);
  ASSERT_TRUE(plan);
  EXPECT_EQ(plan->record.files[0].bytes, 400U);
  EXPECT_EQ(plan->record.files[1].bytes, 240U);
}

// Goal:   case C7: an empty shard at a real offset does not take the place of the box that begins there.
// Method: N=9, T=2, D=4: (d3, t0) is empty at 5, where (d0, t1) has a row.
TEST(WritePlan, AnEmptyShardMeetsNoOther) {
  for (const std::int64_t n : {9, 5, 17, 7}) {
    const Layout layout = strided_rows(n, 2, n == 7 ? 3 : 4);
    const auto plan = plan_write(members_of("w", layout), 0);
    ASSERT_TRUE(plan) << plan.error().message();
    std::int64_t elements = 0;
    for (std::int64_t rank = 0; rank < layout.ranks(); ++rank) {
      const auto places = boxes_of(*plan, rank);
      EXPECT_EQ(places.size(), layout.local_elements(rank) == 0 ? 0U : 1U) << n << " rank " << rank;
      for (const WritePlan::BoxIndex& place : places)
        elements += plan->record.tensors[0].boxes[place.box].box.elements();
    }
    EXPECT_EQ(elements, n);
  }
}

TEST(WritePlan, AMemberWithNothingHasNoFile) {
  const auto plan = plan_write(members_of("w", rows({2}, 4)), 0);
  ASSERT_TRUE(plan);
  EXPECT_THAT(plan->writers, ElementsAre(0, 1));
  EXPECT_EQ(plan->record.files[1].name, "rank-1.bin");
  EXPECT_TRUE(boxes_of(*plan, 3).empty());
}

TEST(WritePlan, MembersMayHaveOtherTensors) {
  const Layout one = *Layout::make(std::vector<std::int64_t>{3}, {});
  std::vector<std::vector<OwnTensor>> members{{own_tensor("stage0.w", one, 0)},
                                              {own_tensor("stage1.w", one, 0)}};
  members[0].push_back({"", MUSTER_U8, 1, {5}, {Box{1, {}, {5}}}});
  const auto plan = plan_write(members, 0);
  ASSERT_TRUE(plan);
  EXPECT_NE(plan->record.find("stage1.w"), nullptr);
  EXPECT_NE(plan->record.find(""), nullptr);
  EXPECT_EQ(plan->record.find("stage2.w"), nullptr);
}

// Goal: nothing is written that no reader would take: a chunk's checksum alone has 34 bytes.
TEST(WritePlan, RefusesMoreMetadataThanAReaderTakes) {
  const auto planned = [](std::int64_t bytes) {
    const std::vector<std::vector<OwnTensor>> members{{{"w", MUSTER_U8, 1, {bytes}, {Box{1, {}, {bytes}}}}}};
    return plan_write(members, 0);
  };
  EXPECT_TRUE(planned(std::int64_t{3} << 40));
  const auto plan = planned(std::int64_t{4} << 40);
  ASSERT_FALSE(plan);
  EXPECT_EQ(plan.error().code(), Code::kBadArgument);
  EXPECT_THAT(plan.error().message(), HasSubstr("at most 134217728 are possible"));
}

TEST(WritePlan, RefusesWhatMembersDoNotAgreeOn) {
  const auto refused = [](std::vector<std::vector<OwnTensor>> members) {
    const auto plan = plan_write(members, 0);
    return plan ? std::string("nothing") : plan.error().message();
  };
  auto members = members_of("w", rows({4, 2}, 2));
  members[1][0].dtype = MUSTER_BF16;
  EXPECT_EQ(refused(members), "tensor \"w\" is f32 [4, 2] at member 0, but bf16 [4, 2] at member 1");
  members = members_of("w", rows({4, 2}, 2));
  members[1].push_back(members[1][0]);
  EXPECT_THAT(refused(members), HasSubstr("member 1 saves tensor \"w\" twice"));
  members = members_of("w", rows({4, 2}, 2));
  members[1][0].boxes[0].offset[0] = 1;
  EXPECT_THAT(refused(members), HasSubstr("\"w\": the boxes"));
  members = members_of("w", rows({4, 2}, 2));
  members.pop_back();
  EXPECT_THAT(refused(members), HasSubstr("\"w\" of shape [4, 2] has 8 elements, but its boxes have 4"));
}

}  // namespace
}  // namespace muster::checkpoint
