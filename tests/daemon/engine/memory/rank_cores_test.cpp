#include "daemon/engine/memory/rank_cores.hpp"

#include "tests/daemon/engine/one_core.hpp"

#include <gtest/gtest.h>

namespace muster::engine {
namespace {

const CoreSet kFour{{0b1111}};

TEST(RankCores, AreAllThatWereGrantedUntilARankAttaches) {
  const RankCores cores(kFour, 2);
  EXPECT_EQ(cores.present(), kFour);
  EXPECT_EQ(cores.working(4), 1u);
  EXPECT_EQ(cores.working(0), 0u) << "an engine that is driven by hand";
}

TEST(RankCores, AreThoseOfAllAttachedRanks) {
  RankCores cores(kFour, 3);
  EXPECT_TRUE(cores.attached(Rank(0), core(2)));
  EXPECT_EQ(cores.present(), core(2));
  EXPECT_EQ(cores.working(4), 1u);
  EXPECT_FALSE(cores.attached(Rank(1), core(2))) << "nothing new";
  EXPECT_TRUE(cores.attached(Rank(2), core(3)));
  EXPECT_EQ(text_of(cores.present()), "2-3");
  EXPECT_EQ(cores.working(4), 2u);
  EXPECT_EQ(cores.working(1), 1u);
}

TEST(RankCores, AreAllWhereOneRankMayUseAllOrNobodyKnows) {
  RankCores cores(kFour, 2);
  EXPECT_FALSE(cores.attached(Rank(0), kFour)) << "they were all before";
  EXPECT_EQ(cores.working(4), 4u);
  EXPECT_EQ(cores.working(7), 7u) << "who asks for more workers than cores gets them, as ever";
  cores.left(Rank(0));
  EXPECT_TRUE(cores.attached(Rank(0), core(1)));
  EXPECT_TRUE(cores.attached(Rank(1), std::nullopt));
  EXPECT_EQ(cores.present(), kFour);
}

TEST(RankCores, AreNeverOthersThanWereGranted) {
  RankCores cores(kFour, 2);
  EXPECT_FALSE(cores.attached(Rank(0), core(9))) << "elsewhere: the engine stays where it is";
  EXPECT_EQ(cores.present(), kFour);
  CoreSet more = core(9);
  more |= core(1);
  EXPECT_TRUE(cores.attached(Rank(1), more));
  EXPECT_EQ(cores.present(), core(1));
}

// Goal:   a departure changes nothing; the next rank to attach counts with those that are still there.
TEST(RankCores, StayUntilARankAttachesAgain) {
  RankCores cores(kFour, 2);
  cores.attached(Rank(0), core(0));
  cores.attached(Rank(1), core(1));
  cores.left(Rank(1));
  EXPECT_EQ(text_of(cores.present()), "0-1");
  EXPECT_TRUE(cores.attached(Rank(1), core(3)));
  EXPECT_EQ(text_of(cores.present()), "0,3");
  cores.left(Rank(0));
  cores.left(Rank(1));
  EXPECT_EQ(text_of(cores.present()), "0,3") << "all have left";
  EXPECT_EQ(cores.working(4), 2u);
  EXPECT_TRUE(cores.attached(Rank(0), core(2)));
  EXPECT_EQ(cores.present(), core(2));
}

// Goal:   ranks that share cores (a rank's threads beside another's) count each core once.
TEST(RankCores, CountSharedCoresOnce) {
  RankCores cores({{0b1111'1111}}, 3);
  EXPECT_TRUE(cores.attached(Rank(0), CoreSet{{0b0000'0111}}));
  EXPECT_TRUE(cores.attached(Rank(1), CoreSet{{0b0000'1110}}));
  EXPECT_EQ(text_of(cores.present()), "0-3");
  EXPECT_EQ(cores.working(8), 4u);
  EXPECT_FALSE(cores.attached(Rank(2), CoreSet{{0b0000'1001}})) << "between them they have these";
  EXPECT_EQ(cores.working(3), 3u) << "never more than there are";
}

// Goal:   a rank that is started anew with another binding counts by that one alone.
TEST(RankCores, FollowARankThatIsBoundAnew) {
  RankCores cores(kFour, 2);
  cores.attached(Rank(0), core(0));
  cores.attached(Rank(1), core(1));
  EXPECT_TRUE(cores.attached(Rank(1), core(2))) << "its former process was not seen to leave";
  EXPECT_EQ(text_of(cores.present()), "0,2");
  cores.left(Rank(1));
  EXPECT_TRUE(cores.attached(Rank(1), core(0)));
  EXPECT_EQ(cores.present(), core(0));
  EXPECT_EQ(cores.working(4), 1u);
}

// Goal:   one rank whose cores nobody sees opens all of them for as long as it is there, and no longer.
TEST(RankCores, AreAllOnlyWhileTheRankThatNobodySeesIsThere) {
  RankCores cores(kFour, 3);
  cores.attached(Rank(0), core(1));
  EXPECT_TRUE(cores.attached(Rank(1), std::nullopt));
  EXPECT_EQ(cores.working(4), 4u);
  EXPECT_FALSE(cores.attached(Rank(2), core(3)));
  EXPECT_EQ(cores.present(), kFour);
  cores.left(Rank(1));
  cores.left(Rank(2));
  EXPECT_TRUE(cores.attached(Rank(2), core(2)));
  EXPECT_EQ(text_of(cores.present()), "1-2");
  EXPECT_EQ(cores.working(4), 2u);
}

// Goal:   machines with more cores than a word has bits, and cores that are not next to each other.
TEST(RankCores, KnowCoresBeyondTheFirstWord) {
  CoreSet granted = core(3);
  for (const std::uint32_t one : {64u, 130u, 191u}) granted |= core(one);
  RankCores cores(granted, 2);
  EXPECT_TRUE(cores.attached(Rank(0), core(130)));
  EXPECT_EQ(text_of(cores.present()), "130");
  CoreSet two = core(64);
  two |= core(65);
  EXPECT_TRUE(cores.attached(Rank(1), two));
  EXPECT_EQ(text_of(cores.present()), "64,130") << "65 was not granted";
  EXPECT_EQ(cores.working(4), 2u);
}

}  // namespace
}  // namespace muster::engine
