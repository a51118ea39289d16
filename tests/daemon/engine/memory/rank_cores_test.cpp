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

}  // namespace
}  // namespace muster::engine
