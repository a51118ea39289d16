#include "daemon/config/document.hpp"

#include "daemon/config/cluster.hpp"
#include "daemon/config/render.hpp"
#include "daemon/config/settings.hpp"

#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace muster::config {
namespace {

using testing::HasSubstr;

std::string repeated(std::string_view piece, std::size_t times) {
  std::string out;
  out.reserve(piece.size() * times);
  for (std::size_t i = 0; i < times; ++i) out += piece;
  return out;
}

Diagnostics read(std::string text) {
  const Source source("f.yaml", std::move(text));
  Diagnostics diagnostics;
  const auto root = read_document(source, &diagnostics);
  EXPECT_TRUE(root || !diagnostics.empty());
  return diagnostics;
}

TEST(Document, KeepsThePlaceOfEveryNode) {
  const Source source("f.yaml", "a: {ü: 'x', b: [1, two]}\nc:\n  - d: 5\n");
  Diagnostics diagnostics;
  const auto root = read_document(source, &diagnostics);
  ASSERT_TRUE(root) << diagnostics.text();
  EXPECT_TRUE(diagnostics.empty());
  const Node* b = root->find("a")->find("b");
  ASSERT_NE(b, nullptr);
  ASSERT_EQ(b->items.size(), 2u);
  EXPECT_EQ(b->items[1].text, "two");
  EXPECT_EQ(b->items[1].mark, (Mark{1, 20}));
  EXPECT_TRUE(root->find("a")->find("ü")->quoted);
  EXPECT_EQ(root->find("c")->items[0].find("d")->mark, (Mark{3, 8}));
  EXPECT_EQ(root->find("c")->items[0].fields[0].mark, (Mark{3, 5}));
  EXPECT_EQ(root->find("missing"), nullptr);
}

// Goal:   a bracket that is not closed is reported where it opens, not where the file ends.
TEST(Document, SaysWhereABracketOpensThatIsNotClosed) {
  const auto told = [](const std::string& text, std::uint32_t line, std::uint32_t column, const char* what) {
    const Diagnostics found = read(text);
    ASSERT_FALSE(found.empty()) << text;
    const Diagnostic& first = found.entries().front();
    EXPECT_EQ((Mark{first.line, first.column}), (Mark{line, column})) << text;
    EXPECT_THAT(first.message, HasSubstr(what));
    EXPECT_NE(first.source_line, "");
  };
  told("cluster: {name: x}\nnode: [1,2\n", 2, 7, "'[' is not closed");
  told("a: 1\nb: {c: 1, d: 2\n\n\n", 2, 4, "'{' is not closed");
  told("a:\n  - [1, {b: 2}, [3, 4]\n", 2, 5, "'[' is not closed");
  told("a: {b: [1, 2], c: {d: 3}\n", 1, 4, "'{' is not closed");
  told("a: [1, {b: 2\n", 1, 8, "'{' is not closed");
  told("a: \"x\nb: 1\n", 1, 4, "this quote is never closed");
  told("a: 'y' # it 's\nb: {c: \"x}\nd: 1", 2, 8, "this quote is never closed");
  told("a: [it's, 'x, 2]\n", 1, 11, "this quote is never closed");
}

TEST(Document, OfCommentsAloneIsAnEmptyMap) {
  for (const char* text : {"", "# nothing\n", "\n\n  \n"}) {
    const Source source("f.yaml", text);
    Diagnostics diagnostics;
    const auto root = read_document(source, &diagnostics);
    ASSERT_TRUE(root) << text;
    EXPECT_EQ(root->kind, Node::Kind::kMap);
    EXPECT_TRUE(root->fields.empty());
  }
}

// Goal:   no nesting reaches the recursion of the library or of our own walk.
// Method: every way to open a level, 200,000 times.
TEST(Document, RefusesDeepNestingWhateverItsShape) {
  for (const char* piece : {"[", "{", "- ", "? ", "{a: ", "a: [", "[{a: ", "? - ", "[\n", "- ? "}) {
    const Diagnostics diagnostics = read(repeated(piece, 200000 / std::string_view(piece).size()));
    ASSERT_FALSE(diagnostics.empty()) << piece;
    EXPECT_THAT(diagnostics.text(), HasSubstr("nested deeper than 32 levels")) << piece;
  }
  std::string indented;
  for (std::size_t i = 0; i < 600; ++i) indented += std::string(i, ' ') + "a:\n";
  EXPECT_THAT(read(indented).text(), HasSubstr("nested deeper"));
  const auto levels = [](std::size_t n) { return "a: " + repeated("[", n) + repeated("]", n); };
  EXPECT_TRUE(read(levels(kDepthMax - 1)).empty());
  EXPECT_FALSE(read(levels(kDepthMax)).empty());
}

// Goal: the text that expands a thousand million times costs nothing, because no alias is ever followed.
TEST(Document, RefusesAnAliasBomb) {
  std::string bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n";
  for (int i = 1; i <= 9; ++i) {
    const std::string below = fmt::format("*a{}", i - 1);
    bomb += fmt::format("a{0}: &a{0} [", i) + below + repeated(", " + below, 8) + "]\n";
  }
  const Diagnostics diagnostics = read(bomb);
  EXPECT_THAT(diagnostics.text(), HasSubstr("anchors ('&a0') are not allowed"));
  EXPECT_THAT(diagnostics.text(), HasSubstr("only the first 50 errors"));
}

TEST(Document, RefusesWhatIsTooLarge) {
  EXPECT_THAT(read(std::string(kTextBytesMax + 1, '#')).text(), HasSubstr("at most 1048576 are read"));
  EXPECT_THAT(read("a: [" + repeated("1,", kNodesMax) + "1]").text(), HasSubstr("more than 100000 values"));
}

// Goal:   a text made to be slow is refused or read in the time of a pass over it, errors included.
// Method: pieces that make a reader look far ahead, or report often on one long line; the test's own limit is
//         the check.
TEST(Document, StaysLinearOnHostileText) {
  for (const char* piece :
       {"\"", "'",   "[],",    "{},",  "!a ",  "&a ",  "*a ",       "a: 1\n", "<<: 1\n",  "- a\n", ",",
        "}",  "%Y ", "--- \n", "\"\\", "|\n ", "\t\n", "a: &b 1, ", "[a],",   "\xC3\xBC", ": ",    "? \n"}) {
    const std::string body = repeated(piece, kTextBytesMax / 4 / std::string_view(piece).size());
    for (const char* opening : {"", "["}) read(opening + body);
  }
}

TEST(Document, RefusesCharactersThatNobodyMeant) {
  EXPECT_THAT(read(std::string("a: b\0c", 6)).text(), HasSubstr("f.yaml:1:5: error: a NUL byte"));
  EXPECT_THAT(read("a: \x1b[0m").text(), HasSubstr("0x1b"));
  EXPECT_THAT(read("a: \x7f").text(), HasSubstr("0x7f"));
  EXPECT_THAT(read("a: 1\rb: 2").text(), HasSubstr("0x0d"));
  EXPECT_THAT(read("a: \xC2\x9B").text(), HasSubstr("a control character"));
  for (const char* bad :
       {"\xff", "\xC0\x80", "\xE0\x80\x80", "\xED\xA0\x80", "\xF4\x90\x80\x80", "\xC3", "\xE2\x82"})
    EXPECT_THAT(read(std::string("a: ") + bad).text(), HasSubstr("not valid UTF-8"));
  EXPECT_THAT(read("\xFF\xFE"
                   "a\0")
                  .text(),
              HasSubstr("not valid UTF-8"));
  EXPECT_TRUE(read("a: \"\xE2\x82\xAC \xF0\x9F\x98\x80\"\r\n").empty());
}

TEST(Document, TakesQuotesOnlyWhenTheyClose) {
  EXPECT_TRUE(read("a: 'it''s'").empty());
  EXPECT_TRUE(read("a: \"x \\\" y\"").empty());
  EXPECT_THAT(read("a: 'it''s").text(), HasSubstr("1:4: error: this quote is never closed"));
  EXPECT_THAT(read("a: 'it''s\n").text(), HasSubstr("1:4: error: a: this quote is never closed"));
  EXPECT_THAT(read("a: \"x \\\" y\n").text(), HasSubstr("never closed"));
}

std::string file_text(const std::string& name) {
  std::ifstream file(std::string(MUSTER_SOURCE_DIR) + "/configs/" + name, std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(file), {});
}

// A result, or an explanation: what both parsers owe for any bytes whatever.
void expect_answer(const std::string& text) {
  Inputs inputs;
  inputs.file = Source("f.yaml", text);
  const auto resolved = resolve(inputs);
  ASSERT_TRUE(resolved || !resolved.error().text().empty());
  const auto cluster = parse_cluster(Source("f.yaml", text));
  ASSERT_TRUE(cluster || !cluster.error().text().empty());
  if (!cluster) {
    for (const Diagnostic& diagnostic : cluster.error().entries()) ASSERT_GE(diagnostic.line, 1u) << text;
  }
}

// Goal:   a file that was cut off while it was written never crashes a daemon.
// Method: every prefix of the files we ship; under the sanitizers every seventh of the long one.
TEST(Document, AnswersForEveryPrefixOfAGoodFile) {
#if defined(MUSTER_SANITIZED)
  constexpr std::size_t kStep = 7;
#else
  constexpr std::size_t kStep = 1;
#endif
  for (const char* name : {"musterd.yaml", "cluster.two-nodes.yaml"}) {
    const std::string text = file_text(name);
    ASSERT_GT(text.size(), 500u);
    const std::size_t step = text.size() > 4000 ? kStep : 1;
    for (std::size_t length = 0; length <= text.size(); length += step) expect_answer(text.substr(0, length));
  }
}

// Goal:   nor does one that was damaged otherwise.
// Method: good files with a few random bytes changed, removed, doubled, or replaced by YAML's own signs.
TEST(Document, AnswersForDamagedFiles) {
  constexpr unsigned kSeed = 42;
  SCOPED_TRACE(kSeed);
  std::mt19937 random(kSeed);
  static constexpr std::string_view kSigns = "[]{}:,-&*!|>'\"%@`#? \n\t\\0";
  const std::vector<std::string> texts{
      file_text("cluster.two-nodes.yaml"), file_text("cluster.one-node.yaml"),
      "node:\n  workers: 4\n  directory_mode: \"0750\"\nlog: {level: info}\n"};
  for (int round = 0; round < 3000; ++round) {
    std::string text = texts[random() % texts.size()];
    for (auto n = 1 + random() % 4; n > 0; --n) {
      const std::size_t at = random() % text.size();
      switch (random() % 4) {
        case 0:
          text[at] = static_cast<char>(random());
          break;
        case 1:
          text.erase(at, 1 + random() % 5);
          break;
        case 2:
          text.insert(at, text.substr(at, 1 + random() % 20));
          break;
        default:
          text.insert(at, 1, kSigns[random() % kSigns.size()]);
          break;
      }
      if (text.empty()) text = "a";
    }
    expect_answer(text);
    if (HasFatalFailure()) FAIL() << "round " << round;
  }
}

}  // namespace
}  // namespace muster::config
