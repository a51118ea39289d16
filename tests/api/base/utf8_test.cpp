#include "api/base/utf8.hpp"

#include <gtest/gtest.h>

namespace muster {
namespace {

TEST(Utf8, FindsTheLengthOfACharacterAndWhatIsNone) {
  EXPECT_EQ(utf8_length("a", 0), 1u);
  EXPECT_EQ(utf8_length("\xC3\xBC", 0), 2u);
  EXPECT_EQ(utf8_length("\xE2\x82\xAC", 0), 3u);
  EXPECT_EQ(utf8_length("\xF0\x9F\x98\x80", 0), 4u);
  for (const char* none :
       {"\xff", "\xC0\x80", "\xE0\x80\x80", "\xED\xA0\x80", "\xF4\x90\x80\x80", "\xC3", "\x9B"})
    EXPECT_EQ(utf8_length(none, 0), 0u) << none;
}

TEST(Printable, LetsNoControlCharacterThrough) {
  EXPECT_EQ(printable("\x1b[31m\x07\x7f red", Lines::kOne), "?[31m?? red");
  EXPECT_EQ(printable("\xC2\x9B"
                      "2J",
                      Lines::kOne),
            "?2J")
      << "the same in UTF-8's second page";
  EXPECT_EQ(printable("\x9B"
                      "2J",
                      Lines::kOne),
            "?2J")
      << "and on a terminal that is not of UTF-8";
  EXPECT_EQ(printable(std::string_view("a\0b", 3), Lines::kOne), "a?b");
  EXPECT_EQ(printable("grün €", Lines::kOne), "grün €");
}

TEST(Printable, KeepsLinesWhereThereMayBeSeveral) {
  EXPECT_EQ(printable("a\tb\n\r", Lines::kSeveral), "a\tb\n?");
  EXPECT_EQ(printable("a\tb\n", Lines::kOne), "a b ");
}

}  // namespace
}  // namespace muster
