#include "api/base/log.hpp"

#include "api/base/assert.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include <fcntl.h>
#include <unistd.h>

namespace muster::log {
namespace {

using testing::HasSubstr;
using testing::MatchesRegex;

// Standard error as a pipe, from construction to destruction.
class Captured {
 public:
  Captured() {
    MUSTER_ASSERT(pipe2(ends_, O_NONBLOCK | O_CLOEXEC) == 0);
    saved_ = dup(STDERR_FILENO);
    MUSTER_ASSERT(saved_ >= 0 && dup2(ends_[1], STDERR_FILENO) >= 0);
    close(ends_[1]);
    fcntl(STDERR_FILENO, F_SETFL, 0);  // blocking, as a real standard error is
  }
  ~Captured() {
    dup2(saved_, STDERR_FILENO);
    close(saved_);
    close_reader();
  }
  Captured(const Captured&) = delete;
  Captured& operator=(const Captured&) = delete;

  // All that was written since the last call.
  std::string take() {
    std::string text(65536, '\0');
    const auto count = read(ends_[0], text.data(), text.size());
    text.resize(count > 0 ? static_cast<std::size_t>(count) : 0);
    return text;
  }
  void close_reader() {
    if (ends_[0] >= 0) close(ends_[0]);
    ends_[0] = -1;
  }

 private:
  int ends_[2] = {-1, -1};
  int saved_ = -1;
};

std::string one_line(Format format, std::string_view message) {
  configure(Level::kDebug, format);
  Captured captured;
  Site site;
  write(site, Level::kWarning, "engine", message);
  return captured.take();
}

std::size_t newlines(std::string_view text) {
  return static_cast<std::size_t>(std::count(text.begin(), text.end(), '\n'));
}

TEST(Log, WritesATimeALevelThePartAndTheSentence) {
  EXPECT_THAT(one_line(Format::kText, "job 7 lost"),
              MatchesRegex("[0-9-]+T[0-9:]+\\.[0-9]+Z warning engine\\[[0-9]+\\]: job 7 lost\n"));
  EXPECT_EQ(one_line(Format::kJournal, "job 7 lost"), "<4>engine: job 7 lost\n");
}

TEST(Log, WritesAnObjectPerLineAsJson) {
  const auto object = nlohmann::json::parse(one_line(Format::kJson, "a \"b\" \\ c\td"));
  EXPECT_EQ(object["level"], "warning");
  EXPECT_EQ(object["part"], "engine");
  EXPECT_EQ(object["pid"], getpid());
  EXPECT_EQ(object["message"], "a \"b\" \\ c\td");
}

// Goal: whatever a client puts into a name, the log has one line for one fact and the terminal gets no
//       command.
TEST(Log, LetsNobodyForgeASecondLine) {
  const std::string forged = "x\n<0>kernel: panic\r\x1b[2Jy\x7f z\u2028w\u0085v\u009b";
  for (const Format format : {Format::kText, Format::kJournal}) {
    const std::string line = one_line(format, forged);
    EXPECT_EQ(newlines(line), 1U);
    EXPECT_THAT(line, HasSubstr("x <0>kernel: panic  [2Jy  z w v \n"));
  }
  const std::string line = one_line(Format::kJson, forged);
  EXPECT_EQ(newlines(line), 1U);
  EXPECT_EQ(nlohmann::json::parse(line)["message"], "x\n<0>kernel: panic\r\x1b[2Jy\x7f z w v ");
}

TEST(Log, KeepsTextAndReplacesWhatIsNoUtf8) {
  struct Case {
    std::string given, expected;
  };
  const std::vector<Case> cases{
      {"é€😀", "é€😀"},
      {"a\xFF\xFE", "a??"},          // never a byte of UTF-8
      {"\xC3", "?"},                 // cut off
      {"\xC0\xAF", "??"},            // overlong '/'
      {"\xE0\x80\xAF", "???"},       // overlong in three bytes
      {"\xF0\x80\x80\xAF", "????"},  // overlong in four
      {"\xED\xA0\x80", "???"},       // a surrogate
      {"\xF4\x90\x80\x80", "????"},  // beyond the last character
      {"\xE2\x82z", "??z"},          // broken in the middle
      {std::string("a\0b", 3), "a b"},
  };
  for (const Case& c : cases) {
    EXPECT_EQ(one_line(Format::kJournal, c.given), "<4>engine: " + c.expected + "\n");
    EXPECT_TRUE(nlohmann::json::accept(one_line(Format::kJson, c.given))) << c.expected;
  }
}

// Goal: a long message costs its end, not the shape of its line, and is never cut inside a character.
TEST(Log, CutsALongMessageAndKeepsTheLineWhole) {
  for (const char* unit : {"a", "é", "😀", "\n", "\""}) {
    std::string message;
    while (message.size() < 9000) message += unit;
    for (const Format format : {Format::kText, Format::kJson, Format::kJournal}) {
      const std::string line = one_line(format, message);
      EXPECT_LE(line.size(), 4096U);
      EXPECT_GT(line.size(), 4096U - 8U);
      EXPECT_EQ(newlines(line), 1U);
      EXPECT_EQ(line.back(), '\n');
      EXPECT_EQ(line.find('?'), std::string::npos);
    }
    EXPECT_TRUE(nlohmann::json::accept(one_line(Format::kJson, message))) << unit;
  }
}

TEST(Log, AdmitsABoundedNumberOfLinesASecond) {
  constexpr std::int64_t kSecond = 1'000'000'000;
  Site site;
  std::uint32_t dropped = 99;
  for (std::uint32_t i = 0; i < Site::kLinesPerSecond; ++i) {
    ASSERT_TRUE(site.admit(5 * kSecond + i, &dropped));
    ASSERT_EQ(dropped, 0U);
  }
  for (int i = 0; i < 7; ++i) EXPECT_FALSE(site.admit(5 * kSecond + 900, &dropped));
  EXPECT_TRUE(site.admit(6 * kSecond, &dropped));
  EXPECT_EQ(dropped, 7U) << "what was dropped is told once";
  EXPECT_TRUE(site.admit(6 * kSecond, &dropped));
  EXPECT_EQ(dropped, 0U);
}

TEST(Log, SaysNothingBelowItsLevel) {
  configure(Level::kWarning, Format::kJournal);
  EXPECT_FALSE(enabled(Level::kInfo));
  EXPECT_TRUE(enabled(Level::kWarning));
  Captured captured;
  int evaluated = 0;
  MUSTER_LOG(kInfo, "engine", "{}", ++evaluated);
  EXPECT_EQ(captured.take(), "");
  EXPECT_EQ(evaluated, 0) << "a line that is not written costs nothing";
  MUSTER_LOG(kError, "engine", "{}", ++evaluated);
  EXPECT_EQ(captured.take(), "<3>engine: 1\n");
  configure(Level::kOff, Format::kText);
  EXPECT_FALSE(enabled(Level::kError));
  EXPECT_FALSE(enabled(Level::kOff));
}

TEST(Log, ReadsItsOwnWords) {
  Level level = Level::kInfo;
  EXPECT_TRUE(parse_level("error", &level));
  EXPECT_EQ(level, Level::kError);
  EXPECT_FALSE(parse_level("ERROR", &level));
  EXPECT_FALSE(parse_level("", &level));
  EXPECT_EQ(level, Level::kError) << "unchanged by a word it does not know";
  Format format = Format::kText;
  EXPECT_TRUE(parse_format("journal", &format));
  EXPECT_EQ(format, Format::kJournal);
  EXPECT_FALSE(parse_format("xml", &format));
}

// Goal: a reader that is stuck or gone costs lines, never the program: no wait, no signal.
TEST(Log, LosesTheLineWhenNobodyReads) {
  configure(Level::kDebug, Format::kJournal);
  Captured captured;
  fcntl(STDERR_FILENO, F_SETFL, O_NONBLOCK);
  const std::string block(1024, '.');
  while (::write(STDERR_FILENO, block.data(), block.size()) > 0) continue;
  fcntl(STDERR_FILENO, F_SETFL, 0);
  Site site;
  write(site, Level::kError, "engine", "this would wait for ever");
  EXPECT_THAT(captured.take(), testing::Not(HasSubstr("for ever")));

  write(site, Level::kError, "engine", "room again");
  EXPECT_EQ(captured.take(), "<3>engine: room again\n");

  captured.close_reader();
  write(site, Level::kError, "engine", "a signal would end the test here");
}

// Goal: lines of threads at one site and at their own stay whole.
TEST(Log, KeepsLinesOfManyThreadsWhole) {
  configure(Level::kDebug, Format::kJournal);
  Captured captured;
  Site shared;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&shared, t] {
      Site own;
      for (int i = 0; i < 10; ++i) write(own, Level::kInfo, "own", fmt::format("{}.{} end", t, i));
      for (int i = 0; i < 50; ++i) write(shared, Level::kInfo, "shared", "same end");
    });
  }
  for (std::thread& thread : threads) thread.join();
  const std::string text = captured.take();
  std::size_t own = 0;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = text.find('\n', at);
    ASSERT_NE(end, std::string::npos);
    const std::string line = text.substr(at, end - at);
    EXPECT_THAT(line, MatchesRegex("<6>(own: [0-3]\\.[0-9] end|shared: same end.*)"));
    own += line.starts_with("<6>own") ? 1U : 0U;
    at = end + 1;
  }
  EXPECT_EQ(own, 40U);
}

}  // namespace
}  // namespace muster::log
