#include "api/base/words.hpp"

#include <chrono>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace muster {
namespace {

std::string text_of(const std::vector<std::uint32_t>& ranks) {
  return rank_list(ranks, ',');
}

TEST(Words, WriteRanksAsRunsOfOneStep) {
  EXPECT_EQ(text_of({}), "");
  EXPECT_EQ(text_of({5}), "5");
  EXPECT_EQ(text_of({0, 4}), "0,4");
  EXPECT_EQ(text_of({0, 1, 2, 3}), "0-3");
  EXPECT_EQ(text_of({0, 2, 4, 6}), "0-6/2");
  EXPECT_EQ(text_of({0, 1, 4, 5}), "0,1,4,5");
  EXPECT_EQ(text_of({0, 1, 2, 8, 9, 10}), "0-2,8-10");
}

TEST(Words, KeepTheOrderOfAGroup) {
  EXPECT_EQ(text_of({3, 2, 1, 0}), "3,2,1,0");
  EXPECT_EQ(text_of({2, 0, 1, 2, 3}), "2,0-3");
  EXPECT_EQ(text_of({5, 5, 5}), "5,5,5");
  EXPECT_EQ(rank_list(std::vector<std::uint32_t>{0, 1, 2, 3, 7}), "0-3 7");
}

// Goal:   the text of a passed deadline names its length, and the settings that give more time.
TEST(Words, SayHowLongADeadlineWas) {
  EXPECT_EQ(
      passed_deadline(std::chrono::seconds(60)),
      "passed its deadline of 60 s (deadline_ns, muster_mesh_deadline or defaults.deadline gives more)");
  EXPECT_THAT(passed_deadline(std::chrono::milliseconds(250)), testing::HasSubstr("of 0.25 s"));
  EXPECT_THAT(passed_deadline(std::chrono::hours(1)), testing::HasSubstr("of 3600 s"));
  for (const Nanos unknown : {Nanos(0), Nanos(-1), Nanos::min()})
    EXPECT_THAT(passed_deadline(unknown), testing::HasSubstr("its deadline (deadline_ns"));
}

TEST(Words, QuoteWhatAShellWouldRead) {
  EXPECT_EQ(shell_word("/run/muster-2"), "/run/muster-2");
  EXPECT_EQ(shell_word("/srv/my run"), "'/srv/my run'");
  EXPECT_EQ(shell_word("/srv/it's"), "'/srv/it'\\''s'");
  EXPECT_EQ(shell_word(""), "''");
}

TEST(Words, NameAHandleThatIsNone) {
  EXPECT_EQ(unknown_handle("buffer", 12345, "freed"),
            "buffer 0x3039 is none of this session: it was freed, or never made here");
  EXPECT_EQ(unknown_handle("plan", UINT64_MAX, "destroyed"),
            "plan 0xffffffffffffffff is none of this session: it was destroyed, or never made here");
  EXPECT_EQ(unknown_handle("buffer", 0, "freed"), "the buffer is 0, which is none: was it ever set?");
}

TEST(Words, WriteBytesInTheUnitThatFits) {
  EXPECT_EQ(bytes_text(0), "0 B");
  EXPECT_EQ(bytes_text(1023), "1023 B");
  EXPECT_EQ(bytes_text(1536), "1.5 KiB");
  EXPECT_EQ(bytes_text(std::uint64_t{64} << 20), "64.0 MiB");
  EXPECT_EQ(bytes_text(UINT64_MAX), "16777216 TiB");
}

}  // namespace
}  // namespace muster
