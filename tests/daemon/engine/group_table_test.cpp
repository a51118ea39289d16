#include "daemon/engine/group_table.hpp"

#include <random>

#include <gmock/gmock.h>
#include <muster/muster.h>

namespace muster::engine {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Found = GroupTable::Found;

constexpr std::uint64_t kEpoch = 0xabcdef;
constexpr GroupTable::Sizes kSizes{3, 4, 2};  // groups of the mesh, ranks, made ones
const std::vector<Rank> kPair{Rank(0), Rank(2)};
const std::vector<Rank> kOther{Rank(2), Rank(0)};
const SessionId kMine(7);
const SessionId kTheirs(8);

TEST(GroupTable, KnowsTheMeshAndEachRankAlone) {
  const GroupTable table(kSizes, kEpoch);
  EXPECT_EQ(table.size(), 9u);
  for (std::uint32_t g = 0; g < kSizes.mesh_groups; ++g)
    EXPECT_EQ(table.find(table.handle_of(GroupId(g)), Rank(1), kMine)->value, g);
  EXPECT_EQ(table.handle_of(GroupId(4)), MUSTER_GROUP_SELF);
  EXPECT_EQ(table.find(MUSTER_GROUP_SELF, Rank(1), kMine)->value, 4u);
  for (const std::uint64_t forged :
       {std::uint64_t{0}, Handle(0, kEpoch + 1).bits, Handle(3, kEpoch).bits, Handle(7, kEpoch).bits,
        Handle(8, kEpoch + 1).bits, Handle(9, kEpoch).bits, Handle(65535, kEpoch).bits})
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
  table.hold(group, Holder::of(kMine));
  const std::uint64_t handle = table.handle_of(group);
  EXPECT_EQ(*table.find(handle, Rank(0), kMine), group);
  EXPECT_EQ(table.find(handle, Rank(2), kTheirs).error().code(), Code::kStale);
  table.hold(group, Holder::of(kTheirs));
  EXPECT_EQ(*table.find(handle, Rank(2), kTheirs), group);
  EXPECT_FALSE(table.drop(group, Holder::of(kMine)));
  EXPECT_TRUE(table.drop(group, Holder::of(kTheirs)));
}

TEST(GroupTable, LetsWhoHoldsAMeshUseItsGroups) {
  GroupTable table(kSizes, kEpoch);
  const GroupId group = *table.make("tp", kPair, Found::kOtherwise);
  MadeMesh& mesh = table.add_mesh({0,
                                   5,
                                   "tp=2",
                                   mesh::GroupList(*mesh::Mesh::build(*mesh::Degrees::parse("tp=2"), 2, {})),
                                   kPair,
                                   {group},
                                   {}});
  table.hold(group, {Holder::Kind::kMesh, mesh.handle});
  mesh.sessions.insert(kMine);
  EXPECT_TRUE(table.find(table.handle_of(group), Rank(0), kMine).has_value());
  EXPECT_FALSE(table.find(table.handle_of(group), Rank(0), kTheirs).has_value());
  EXPECT_EQ(table.mesh_over(5, "tp=2"), &mesh);
  EXPECT_EQ(table.mesh_over(5, "tp=-1"), nullptr);
  EXPECT_THAT(table.meshes_of(kMine), ElementsAre(mesh.handle));
  EXPECT_EQ(table.mesh(mesh.handle + 1), nullptr);
}

TEST(GroupTable, NamesItsLimit) {
  GroupTable table(kSizes, kEpoch);
  ASSERT_TRUE(table.make("a", kPair, Found::kByName).has_value());
  ASSERT_TRUE(table.make("b", kPair, Found::kByName).has_value());
  const auto third = table.make("c", kPair, Found::kByName);
  ASSERT_FALSE(third.has_value());
  EXPECT_EQ(third.error().code(), Code::kNoResource);
  EXPECT_THAT(third.error().message(), HasSubstr("2 made groups, the limit (limits.groups_made_max)"));
}

// Goal:   an old handle is never good again, whatever comes and goes in its place.
TEST(GroupTable, GivesNoHandleTwice) {
  GroupTable table(kSizes, kEpoch);
  std::set<std::uint64_t> old;
  std::vector<GroupId> live;
  std::mt19937_64 random(3);
  for (int step = 0; step < 5000; ++step) {
    if (live.size() < kSizes.made_max && random() % 2 == 0) {
      live.push_back(*table.make(std::to_string(step), kPair, Found::kByName));
      table.hold(live.back(), Holder::of(kMine));
      EXPECT_EQ(old.count(table.handle_of(live.back())), 0u) << "step " << step;
    } else if (!live.empty()) {
      old.insert(table.handle_of(live.back()));
      ASSERT_TRUE(table.drop(live.back(), Holder::of(kMine)));
      table.forget(live.back());
      live.pop_back();
    }
  }
  EXPECT_GT(old.size(), 1000u);
  for (const std::uint64_t handle : old) EXPECT_FALSE(table.find(handle, Rank(0), kMine).has_value());
}

}  // namespace
}  // namespace muster::engine
