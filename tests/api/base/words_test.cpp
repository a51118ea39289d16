#include "api/base/words.hpp"

#include <vector>

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

TEST(Words, WriteBytesInTheUnitThatFits) {
  EXPECT_EQ(bytes_text(0), "0 B");
  EXPECT_EQ(bytes_text(1023), "1023 B");
  EXPECT_EQ(bytes_text(1536), "1.5 KiB");
  EXPECT_EQ(bytes_text(std::uint64_t{64} << 20), "64.0 MiB");
  EXPECT_EQ(bytes_text(UINT64_MAX), "16777216 TiB");
}

}  // namespace
}  // namespace muster
