#include "daemon/cli/table.hpp"

#include <sstream>

#include <gtest/gtest.h>

namespace muster::cli {
namespace {

std::string text_of(std::vector<std::uint32_t> ranks) {
  return ranks_text(ranks);
}

TEST(Table, WritesRanksAsRunsOfOneStep) {
  EXPECT_EQ(text_of({}), "");
  EXPECT_EQ(text_of({5}), "5");
  EXPECT_EQ(text_of({0, 4}), "0,4");
  EXPECT_EQ(text_of({0, 1, 2, 3}), "0-3");
  EXPECT_EQ(text_of({0, 2, 4, 6}), "0-6/2");
  EXPECT_EQ(text_of({0, 1, 4, 5}), "0,1,4,5");
  EXPECT_EQ(text_of({0, 1, 2, 8, 9, 10}), "0-2,8-10");
}

TEST(Table, AlignsColumnsAndCutsTrailingBlanks) {
  EXPECT_EQ(table({"A", "LONG", "C"}, {{"xx", "", "1"}, {"y", "zz", ""}}),
            "A   LONG  C\nxx        1\ny   zz\n");
}

TEST(Table, CountsCharactersNotBytes) {
  EXPECT_EQ(table({"A", "B"}, {{"ü", "1"}}), "A  B\nü  1\n");
}

TEST(Table, WrapsTheLastColumnWithinAHundredColumns) {
  std::string names;
  for (int i = 0; i < 40; ++i) names += "name" + std::to_string(i) + ", ";
  std::istringstream lines(table({"ID", "NAMES"}, {{"7", names}}));
  std::string line;
  int count = 0;
  for (; std::getline(lines, line); ++count) EXPECT_LE(line.size(), kColumnsMax) << line;
  EXPECT_GT(count, 4);
}

TEST(Table, WritesBytesAndTimesForPeople) {
  EXPECT_EQ(bytes_text(0), "0 B");
  EXPECT_EQ(bytes_text(1023), "1023 B");
  EXPECT_EQ(bytes_text(1536), "1.5 KiB");
  EXPECT_EQ(bytes_text(std::uint64_t{64} << 20), "64.0 MiB");
  EXPECT_EQ(duration_text(12'340'000'000), "12.3 s");
  EXPECT_EQ(duration_text(3'725'000'000'000), "1h 2m");
  EXPECT_EQ(duration_text(std::int64_t{90000} * 1'000'000'000), "1d 1h");
}

}  // namespace
}  // namespace muster::cli
