#include "daemon/engine/session/group_table.hpp"

#include <random>

#include <gmock/gmock.h>
#include <muster/muster.h>

namespace muster::engine {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Found = GroupTable::Found;

constexpr std::uint64_t kEpoch = 0xabcdef;
const GroupTable::Sizes kSizes{3, 4, 2};  // groups of the mesh, ranks, made ones that each may hold
const std::vector<Rank> kPair{Rank(0), Rank(2)};
const std::vector<Rank> kOther{Rank(2), Rank(0)};
const SessionId kMine(7);
const SessionId kTheirs(8);

TEST(GroupTable, KnowsTheMeshAndEachRankAlone) {
  const GroupTable table(kSizes, kEpoch);
  EXPECT_EQ(table.size(), 3u + 4u + 8u);
  for (std::uint32_t g = 0; g < kSizes.mesh_groups; ++g)
    EXPECT_EQ(table.find(table.handle_of(GroupId(g)), Rank(1), kMine)->value, g);
  EXPECT_EQ(table.handle_of(GroupId(4)), MUSTER_GROUP_SELF);
  EXPECT_EQ(table.find(MUSTER_GROUP_SELF, Rank(1), kMine)->value, 4u);
  for (const std::uint64_t forged :
       {std::uint64_t{0}, Handle(0, kEpoch + 1).bits, Handle(3, kEpoch).bits, Handle(7, kEpoch).bits,
        Handle(8, kEpoch + 1).bits, Handle(15, kEpoch).bits, Handle(65535, kEpoch).bits})
    EXPECT_EQ(table.find(forged, Rank(1), kMine).error().code(), Code::kStale) << forged;
}

TEST(GroupTable, FindsMadeGroupsByNameAndRanksForThoseWhoHoldThem) {
  GroupTable table(kSizes, kEpoch);
  EXPECT_FALSE(table.made("a", kPair).has_value());
  const GroupId group = *table.make("a", kPair, Found::kByName);
  EXPECT_EQ(table.made("a", kPair), group);
  EXPECT_FALSE(table.made("b", kPair).has_value());
  EXPECT_FALSE(table.made("a", kOther).has_value());
  const GroupId survivors = *table.make("b", kPair, Found::kOtherwise);
  EXPECT_NE(survivors, group);
  EXPECT_FALSE(table.made("b", kPair).has_value()) << "nobody finds it by its name";
  table.hold(group, {kMine});
  const std::uint64_t handle = table.handle_of(group);
  EXPECT_EQ(*table.find(handle, Rank(0), kMine), group);
  EXPECT_EQ(table.find(handle, Rank(2), kTheirs).error().code(), Code::kStale);
  table.hold(group, {kTheirs});
  EXPECT_EQ(*table.find(handle, Rank(2), kTheirs), group);
  EXPECT_FALSE(table.drop(group, {kMine}));
  EXPECT_TRUE(table.drop(group, {kTheirs}));
}

TEST(GroupTable, KeepsAGroupForASessionThatHoldsItInSeveralWays) {
  GroupTable table(kSizes, kEpoch);
  const GroupId group = *table.make("tp", kPair, Found::kByName);
  const GroupId other = *table.make("dp", kPair, Found::kOtherwise);
  table.hold(group, {kMine});
  table.hold(group, {kMine, 0});  // by the job's mesh
  for (const GroupId each : {group, other}) table.hold(each, {kMine, 5});
  EXPECT_EQ(table.ways_held(group, kMine), 3u);
  EXPECT_EQ(table.ways_held(group, kTheirs), 0u);
  EXPECT_THAT(table.held_by({kMine, 5}), ElementsAre(group, other));
  EXPECT_TRUE(table.in_transit()) << "three holds of one session are no second member";
  EXPECT_FALSE(table.drop(group, {kMine, 5}));
  EXPECT_FALSE(table.drop(group, {kMine}));
  EXPECT_TRUE(table.find(table.handle_of(group), Rank(0), kMine).has_value());
  EXPECT_FALSE(table.find(table.handle_of(group), Rank(0), kTheirs).has_value());
  EXPECT_FALSE(table.drop_all(group, kTheirs)) << "it holds nothing";
  EXPECT_TRUE(table.drop_all(group, kMine));
  EXPECT_THAT(table.held_by({kMine, 5}), ElementsAre(other));
}

// Goal:   the limit is on what a session holds, so that it depends on the rank's own calls alone.
TEST(GroupTable, NamesTheLimitOfWhatASessionHolds) {
  GroupTable table(kSizes, kEpoch);
  for (const char* name : {"a", "b"}) {
    EXPECT_TRUE(table.may_hold(Rank(0), kMine, 1).ok());
    table.hold(*table.make(name, kPair, Found::kByName), {kMine});
  }
  const Status third = table.may_hold(Rank(0), kMine, 1);
  EXPECT_EQ(third.code(), Code::kNoResource);
  EXPECT_THAT(third.message(), HasSubstr("rank 0 holds 2 made groups"));
  EXPECT_THAT(third.message(), HasSubstr("limits.groups_made_max (2)"));
  EXPECT_TRUE(table.may_hold(Rank(2), kTheirs, 2).ok()) << "it holds none";
  table.drop(*table.made("a", kPair), {kMine});
  EXPECT_TRUE(table.may_hold(Rank(0), kMine, 1).ok());
}

TEST(GroupTable, KnowsWhetherAGroupIsOnItsWay) {
  GroupTable table(kSizes, kEpoch);
  const GroupId group = *table.make("a", kPair, Found::kByName);
  EXPECT_FALSE(table.in_transit()) << "nobody holds it";
  table.hold(group, {kMine});
  EXPECT_TRUE(table.in_transit()) << "the other has not made it yet";
  table.hold(group, {kTheirs});
  EXPECT_FALSE(table.in_transit());
  table.drop(group, {kMine});
  EXPECT_TRUE(table.in_transit()) << "the other has not freed it yet";
}

TEST(GroupTable, IsBusyWhereNoPlaceIsLeft) {
  GroupTable table(kSizes, kEpoch);
  for (std::uint32_t i = table.first_made(); i < table.size(); ++i)
    ASSERT_TRUE(table.make(std::to_string(i), kPair, Found::kByName).has_value());
  EXPECT_EQ(table.make("one more", kPair, Found::kByName).error().code(), Code::kBusy);
}

// A handle has 16 bits for the place.
TEST(GroupTable, HasNoMorePlacesThanHandlesTellApart) {
  EXPECT_EQ(GroupTable({3, 1024, 4096}, kEpoch).size(), GroupTable::kGroupsMax);
}

// Goal:   an old handle is never good again, whatever comes and goes in its place.
TEST(GroupTable, GivesNoHandleTwice) {
  GroupTable table(kSizes, kEpoch);
  std::set<std::uint64_t> old;
  std::vector<GroupId> live;
  std::mt19937_64 random(3);
  for (int step = 0; step < 5000; ++step) {
    if (live.size() < kSizes.held_max && random() % 2 == 0) {
      live.push_back(*table.make(std::to_string(step), kPair, Found::kByName));
      table.hold(live.back(), {kMine});
      EXPECT_EQ(old.count(table.handle_of(live.back())), 0u) << "step " << step;
    } else if (!live.empty()) {
      old.insert(table.handle_of(live.back()));
      ASSERT_TRUE(table.drop(live.back(), {kMine}));
      table.forget(live.back());
      live.pop_back();
    }
  }
  EXPECT_GT(old.size(), 1000u);
  for (const std::uint64_t handle : old) EXPECT_FALSE(table.find(handle, Rank(0), kMine).has_value());
}

}  // namespace
}  // namespace muster::engine
