#include "daemon/config/table.hpp"

#include <algorithm>
#include <cstdlib>
#include <sstream>

#include <gtest/gtest.h>

namespace muster::config {
namespace {

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

// The width of the widest line, in characters.
std::size_t widest(const std::string& text) {
  std::istringstream lines(text);
  std::size_t most = 0;
  for (std::string line; std::getline(lines, line);)
    most = std::max(most, static_cast<std::size_t>(std::count_if(line.begin(), line.end(),
                                                                 [](char c) { return (c & 0xC0) != 0x80; })));
  return most;
}

const Cells kHead{"JOB", "OWNER", "BYTES", "MESH"};
const std::vector<Cells> kRows{{"run-12345-0badcafe", "somebody-else", "1234567890123", "dp=2,tp=2"},
                               {"train", "me", "7", "dp_replicate=2,dp_shard=4,tp=2"}};

TEST(Table, ShortensTheLeastImportantColumnFirst) {
  const std::string text = table(kHead, kRows, {68, {"OWNER"}});
  EXPECT_EQ(widest(table(kHead, kRows)), 80u);
  EXPECT_LE(widest(text), 68u) << text;
  EXPECT_NE(text.find("somebody-e…"), std::string::npos) << text;
  EXPECT_NE(text.find("run-12345-0badcafe"), std::string::npos) << "it is more important: " << text;
  EXPECT_NE(text.find("1234567890123"), std::string::npos) << text;
}

TEST(Table, LeavesAColumnOutWhereThatIsNotEnoughAndSaysSo) {
  const std::string text = table(kHead, kRows, {55, {"OWNER", "BYTES"}});
  EXPECT_LE(widest(text), 55u) << text;
  EXPECT_EQ(text.find("somebod"), std::string::npos) << text;
  EXPECT_NE(text.find("1234567890123"), std::string::npos) << "there is room for it: " << text;
  EXPECT_NE(text.find("(55 columns are too few for OWNER)\n"), std::string::npos) << text;
}

TEST(Table, BreaksNoNumber) {
  const std::vector<Cells> rows{
      {"12345678901234567890", "0-3,8,16,24,32,40,48", "no-number-123456789", "end"}};
  const std::string text = table({"A", "B", "C", "D"}, rows, {40, {}});
  EXPECT_NE(text.find("12345678901234567890  0-3,8,…"), std::string::npos) << text;
  EXPECT_NE(text.find("no-numb…"), std::string::npos) << text;
}

TEST(Table, KeepsItsWidthWhereNobodyAsksForLess) {
  EXPECT_EQ(table(kHead, kRows, {kColumnsMax, {"OWNER"}}), table(kHead, kRows));
}

TEST(Table, BreaksALongWordOfTheLastColumn) {
  const std::string text = table({"A", "B"}, {{"1", std::string(100, 'x')}}, {40, {}});
  EXPECT_LE(widest(text), 40u) << text;
  EXPECT_EQ(std::count(text.begin(), text.end(), 'x'), 100);
}

// Goal:   a name that another chose neither moves the cursor nor begins a line of its own.
TEST(Table, LetsNoControlCharacterOfACellThrough) {
  EXPECT_EQ(table({"A", "B"}, {{"\x1b[2J", "x\ny"}}), "A     B\n?[2J  x y\n");
}

TEST(Table, HasAsManyColumnsAsTheUserSays) {
  for (const auto& [said, columns] : std::vector<std::pair<const char*, std::size_t>>{
           {"60", 60}, {"1000", kColumnsMax}, {"5", 40}, {"many", kColumnsMax}, {"", kColumnsMax}}) {
    setenv("COLUMNS", said, 1);
    EXPECT_EQ(screen_columns(), columns) << said;
  }
  unsetenv("COLUMNS");
}

TEST(Table, WritesTimesForPeople) {
  EXPECT_EQ(duration_text(12'340'000'000), "12.3 s");
  EXPECT_EQ(duration_text(3'725'000'000'000), "1h 2m");
  EXPECT_EQ(duration_text(std::int64_t{90000} * 1'000'000'000), "1d 1h");
}

}  // namespace
}  // namespace muster::config
