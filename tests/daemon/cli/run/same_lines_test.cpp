#include "daemon/cli/run/same_lines.hpp"

#include <string>

#include <gtest/gtest.h>

namespace muster::cli {
namespace {

using Say = SameLines::Say;

TEST(SameLines, SayOnceWhatSeveralRanksSay) {
  SameLines lines;
  for (const std::uint32_t rank : {2u, 0u, 1u, 5u})
    lines.add(rank, "rank " + std::to_string(rank) + ": no memory");
  lines.add(3, "another matter");
  EXPECT_EQ(lines.take(Say::kOnce), "[0-2,5] no memory\n[3] another matter\n");
  EXPECT_TRUE(lines.empty());
  EXPECT_EQ(lines.take(Say::kOnce), "");
}

TEST(SameLines, LeaveALineOfOneRankAsItIs) {
  SameLines lines;
  lines.add(7, "rank 7: alone");
  lines.add(8, "rank 7: of another");
  EXPECT_EQ(lines.take(Say::kOnce), "[7] rank 7: alone\n[8] rank 7: of another\n")
      << "rank 8 speaks of rank 7";
}

TEST(SameLines, SayEachWhereNothingFails) {
  SameLines lines;
  lines.add(0, "rank 0: ready");
  lines.add(1, "rank 1: ready");
  EXPECT_EQ(lines.take(Say::kEach), "[0] rank 0: ready\n[1] rank 1: ready\n");
}

// Goal:   no line of a rank comes before one that the rank has said earlier.
TEST(SameLines, KeepTheOrderOfEachRank) {
  SameLines lines;
  lines.add(0, "first");
  lines.add(0, "second");
  lines.add(1, "second");
  lines.add(1, "first");
  lines.add(0, "second");
  lines.add(1, "second");
  EXPECT_EQ(lines.take(Say::kOnce), "[0] first\n[0,1] second\n[1] first\n[0,1] second\n");
}

TEST(SameLines, KeepTextsThatAreNobodysInTheirPlace) {
  SameLines lines;
  lines.add(0, "bad");
  lines.add_own("muster run: rank 0 exited with code 1\n");
  lines.add(1, "bad");
  lines.add_own("muster run: rank 0 exited with code 1\n");
  EXPECT_EQ(lines.take(Say::kOnce),
            "[0,1] bad\nmuster run: rank 0 exited with code 1\nmuster run: rank 0 exited with code 1\n");
}

TEST(SameLines, AreFullBeforeTheyHoldMuch) {
  SameLines lines;
  std::size_t held = 0;
  for (; !lines.full(); ++held) lines.add(0, std::string(1023, 'x'));
  EXPECT_EQ(held, SameLines::kBytesMax / 1024);
}

}  // namespace
}  // namespace muster::cli
