#include "daemon/config/diagnostic.hpp"

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace muster::config {
namespace {

using testing::HasSubstr;

TEST(Source, CountsLinesAndCharactersNotBytes) {
  const Source source("f", "a\r\nü: x\n\nlast");
  EXPECT_EQ(source.line(1), "a");
  EXPECT_EQ(source.line(2), "ü: x");
  EXPECT_EQ(source.line(3), "");
  EXPECT_EQ(source.line(4), "last");
  EXPECT_EQ(source.line(5), "");
  EXPECT_EQ(source.line(0), "");
  EXPECT_EQ(source.mark(7), (Mark{2, 4}));  // the x: ü has two bytes
  EXPECT_EQ(source.mark(10000), (Mark{4, 5}));
}

TEST(Diagnostic, PointsAtThePlace) {
  const Source source("musterd.yaml", "node:\n  gpu: 4\n");
  const Diagnostic diagnostic =
      diagnostic_at(source, {2, 3}, "node.gpu", {"unknown key", "did you mean 'gpus'?"});
  EXPECT_EQ(diagnostic.text(),
            "musterd.yaml:2:3: error: node.gpu: unknown key; did you mean 'gpus'?\n"
            "    gpu: 4\n"
            "    ^");
}

TEST(Diagnostic, ShowsAPieceOfALongLineAndNoControlCharacters) {
  const std::string line = std::string(5000, 'x') + "\t\x1b[31mHERE" + std::string(5000, 'y');
  const Source source("f", line);
  const std::string text = diagnostic_at(source, source.mark(5006), "", {"wrong", ""}).text();
  EXPECT_LT(text.size(), 400u);
  EXPECT_EQ(text.find('\x1b'), std::string::npos);
  const std::size_t second = text.find('\n') + 1, third = text.find('\n', second) + 1;
  EXPECT_EQ(text[second + (text.size() - 1 - third)], 'H');
}

TEST(Diagnostics, KeepsTheFirstFiftyInTheOrderOfTheText) {
  Diagnostics diagnostics;
  for (std::uint32_t line = 50; line >= 1; --line) diagnostics.add({"f", line, 1, "", "wrong", "", ""});
  EXPECT_FALSE(diagnostics.full());
  diagnostics.add({"f", 51, 1, "", "wrong", "", ""});
  EXPECT_TRUE(diagnostics.full());
  ASSERT_EQ(diagnostics.entries().size(), Diagnostics::kKeptMax);
  EXPECT_EQ(diagnostics.entries().front().line, 1u);
  EXPECT_EQ(diagnostics.entries().back().line, 50u);
  EXPECT_THAT(diagnostics.text(), HasSubstr("only the first 50 errors"));
  EXPECT_EQ(diagnostics.status().code(), Code::kConfig);
}

}  // namespace
}  // namespace muster::config
