#include "daemon/cli/run/line_prefixer.hpp"

#include <gtest/gtest.h>

namespace muster::cli {
namespace {

TEST(LinePrefixer, NamesTheRankBeforeEachWholeLine) {
  LinePrefixer lines("[3] ", LinePrefixer::CarriageReturn::kShowLast);
  EXPECT_EQ(lines.feed("one\ntwo\n"), "[3] one\n[3] two\n");
}

TEST(LinePrefixer, WaitsForTheRestOfALine) {
  LinePrefixer lines("[0] ", LinePrefixer::CarriageReturn::kShowLast);
  EXPECT_EQ(lines.feed("hal"), "");
  EXPECT_EQ(lines.feed("f\nnext"), "[0] half\n");
  EXPECT_EQ(lines.finish(), "[0] next\n");
  EXPECT_EQ(lines.finish(), "");
}

TEST(LinePrefixer, KeepsEmptyLines) {
  LinePrefixer lines("[0] ", LinePrefixer::CarriageReturn::kShowLast);
  EXPECT_EQ(lines.feed("\n\n"), "[0] \n[0] \n");
}

TEST(LinePrefixer, ShowsTheLastStateOfAProgressLine) {
  LinePrefixer lines("[1] ", LinePrefixer::CarriageReturn::kShowLast);
  EXPECT_EQ(lines.feed("10 %\r55 %\r100 %\n"), "[1] 100 %\n");
  EXPECT_EQ(lines.feed("dos\r\n"), "[1] dos\n");
  EXPECT_EQ(lines.feed("split\r"), "");
  EXPECT_EQ(lines.feed("\n"), "[1] split\n");
}

TEST(LinePrefixer, LetsProgressThroughToATerminal) {
  LinePrefixer lines("[0] ", LinePrefixer::CarriageReturn::kPassThrough);
  EXPECT_EQ(lines.feed("10 %\r55 %\r"), "[0] 10 %\r[0] 55 %\r");
  EXPECT_EQ(lines.feed("\rdone\n"), "[0] done\n");
}

// Goal:   a line of JSON stays one, however long a program would make it.
TEST(LinePrefixer, KeepsLongLinesWhole) {
  LinePrefixer lines("[0] ", LinePrefixer::CarriageReturn::kShowLast);
  const std::string longest(LinePrefixer::kLineBytesMax, 'x');
  EXPECT_EQ(lines.feed(longest + "\n"), "[0] " + longest + "\n");
}

// Goal:   a line without an end is cut with a sign, and never within a letter.
TEST(LinePrefixer, CutsALineThatHasNoEnd) {
  constexpr std::size_t kMost = 64;
  for (const std::string letter : {"x", "я", "€", "😀"})
    for (const std::size_t before : {0, 1, 2, 3}) {
      LinePrefixer lines("[0] ", LinePrefixer::CarriageReturn::kShowLast, kMost);
      std::string line(before, 'a');
      while (line.size() < kMost + 8) line += letter;
      std::string out = lines.feed(line) + lines.finish();
      const std::size_t cut = out.find("…\n[0] …");
      ASSERT_NE(cut, std::string::npos) << letter;
      EXPECT_EQ((cut - 4 - before) % letter.size(), 0u) << letter << " is cut after " << before;
      out.replace(cut, std::string("…\n[0] …").size(), "");
      EXPECT_TRUE(out == "[0] " + line + "\n") << letter << " after " << before;
      EXPECT_LE(kMost - (cut - 4), 3u);
    }
}

}  // namespace
}  // namespace muster::cli
