#include "api/base/world.hpp"

#include <memory>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace muster {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<Rank> ranks_of(std::initializer_list<std::uint32_t> numbers) {
  std::vector<Rank> ranks;
  for (const std::uint32_t number : numbers) ranks.push_back(Rank(number));
  return ranks;
}

World uneven(std::uint32_t here) {
  const std::vector<std::uint32_t> node_of{1, 0, 1, 1, 2};
  return *World::build({"a", "b", "c"}, node_of, NodeIndex(here));
}

TEST(World, OfANumberIsAllOnThisNode) {
  const World world = 3;
  EXPECT_EQ(world.size(), 3u);
  EXPECT_THAT(world.locals(), ElementsAre(Rank(0), Rank(1), Rank(2)));
  EXPECT_EQ(world.nodes().size(), 1u);
  EXPECT_TRUE(world.is_local(Rank(2)));
  EXPECT_FALSE(world.is_local(Rank(3))) << "which it does not have";
}

TEST(World, GivesTheRanksOfThisNodePlacesInTheirOrder) {
  const World world = uneven(1);
  EXPECT_EQ(world.size(), 5u);
  EXPECT_THAT(world.locals(), ElementsAre(Rank(0), Rank(2), Rank(3)));
  EXPECT_EQ(world.local(Rank(3)), LocalRank(2));
  EXPECT_EQ(world.rank_of(LocalRank(1)), Rank(2));
  EXPECT_FALSE(world.is_local(Rank(4)));
  EXPECT_EQ(world.name_of(world.node_of(Rank(4))), "c");
  EXPECT_TRUE(world.are_local(ranks_of({0, 3})));
  EXPECT_FALSE(world.are_local(ranks_of({0, 1})));
  EXPECT_TRUE(world.any_local(ranks_of({1, 0})));
  EXPECT_FALSE(world.any_local(ranks_of({1, 4})));
  EXPECT_FALSE(world == uneven(0));
  EXPECT_TRUE(world == uneven(1));
}

TEST(World, SaysWhereRanksAre) {
  EXPECT_EQ(uneven(0).text_of(ranks_of({0, 1, 2, 3, 4})), "ranks 1 on node a, 0 2 3 on node b, 4 on node c");
  EXPECT_EQ(uneven(0).text_of(ranks_of({4})), "rank 4 on node c");
}

TEST(World, RefusesWhatIsNoPlacement) {
  const auto why = [](std::vector<std::string> nodes, const std::vector<std::uint32_t>& node_of,
                      std::uint32_t here) {
    const auto world = World::build(std::move(nodes), node_of, NodeIndex(here));
    return world ? std::string() : world.error().text();
  };
  EXPECT_THAT(why({"a", "b", "a"}, {0, 1, 2}, 0), HasSubstr("node a stands twice"));
  EXPECT_THAT(why({"a", "b"}, {0, 2}, 0), HasSubstr("rank 1 is placed on node number 2"));
  EXPECT_THAT(why({"a", "b"}, {0, 0}, 0), HasSubstr("no rank is placed on node b"));
  EXPECT_THAT(why({"a"}, {0}, 1), HasSubstr("number 1"));
  EXPECT_THAT(why({}, {}, 0), HasSubstr("0 nodes"));
}

TEST(RankTable, HasAValueForEachRankOfThisNode) {
  RankTable<std::unique_ptr<int>> table(
      uneven(1), [](Rank rank) { return std::make_unique<int>(static_cast<int>(rank.value)); });
  EXPECT_EQ(table.size(), 3u);
  EXPECT_EQ(*table[Rank(2)], 2);
  EXPECT_EQ(*table[LocalRank(2)], 3);
  EXPECT_DEATH(static_cast<void>(table[Rank(1)]), "assertion failed");
}

}  // namespace
}  // namespace muster
