#include "daemon/cli/line_prefixer.hpp"

#include <gtest/gtest.h>

namespace muster::cli {
namespace {

TEST(LinePrefixer, NamesTheRankBeforeEachWholeLine) {
  LinePrefixer lines("[3] ", CarriageReturn::kShowLast);
  EXPECT_EQ(lines.feed("one\ntwo\n"), "[3] one\n[3] two\n");
}

TEST(LinePrefixer, WaitsForTheRestOfALine) {
  LinePrefixer lines("[0] ", CarriageReturn::kShowLast);
  EXPECT_EQ(lines.feed("hal"), "");
  EXPECT_EQ(lines.feed("f\nnext"), "[0] half\n");
  EXPECT_EQ(lines.finish(), "[0] next\n");
  EXPECT_EQ(lines.finish(), "");
}

TEST(LinePrefixer, KeepsEmptyLines) {
  LinePrefixer lines("[0] ", CarriageReturn::kShowLast);
  EXPECT_EQ(lines.feed("\n\n"), "[0] \n[0] \n");
}

TEST(LinePrefixer, ShowsTheLastStateOfAProgressLine) {
  LinePrefixer lines("[1] ", CarriageReturn::kShowLast);
  EXPECT_EQ(lines.feed("10 %\r55 %\r100 %\n"), "[1] 100 %\n");
  EXPECT_EQ(lines.feed("dos\r\n"), "[1] dos\n");
  EXPECT_EQ(lines.feed("split\r"), "");
  EXPECT_EQ(lines.feed("\n"), "[1] split\n");
}

TEST(LinePrefixer, LetsProgressThroughToATerminal) {
  LinePrefixer lines("[0] ", CarriageReturn::kPassThrough);
  EXPECT_EQ(lines.feed("10 %\r55 %\r"), "[0] 10 %\r[0] 55 %\r");
  EXPECT_EQ(lines.feed("\rdone\n"), "[0] done\n");
}

TEST(LinePrefixer, CutsALineThatHasNoEnd) {
  LinePrefixer lines("[0] ", CarriageReturn::kShowLast);
  const std::string out = lines.feed(std::string(LinePrefixer::kLineBytesMax + 1, 'x'));
  EXPECT_EQ(out, "[0] " + std::string(LinePrefixer::kLineBytesMax, 'x') + "\n");
  EXPECT_EQ(lines.finish(), "[0] x\n");
}

}  // namespace
}  // namespace muster::cli
