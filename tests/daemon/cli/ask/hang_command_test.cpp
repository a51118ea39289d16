#include "daemon/cli/ask/hang_command.hpp"

#include "api/base/blame/blame.hpp"

#include <fstream>
#include <iterator>
#include <regex>
#include <set>

#include <gtest/gtest.h>

namespace muster::cli {
namespace {

// Which verdict comes after; the compiler asks for each that is new.
std::optional<blame::Report::Diagnosis> after(blame::Report::Diagnosis verdict) {
  using enum blame::Report::Diagnosis;
  switch (verdict) {
    case kHealthy:
      return kSlow;
    case kSlow:
      return kUnknown;
    case kUnknown:
      return kNotJoined;
    case kNotJoined:
      return kNotAttached;
    case kNotAttached:
      return kMismatchPending;
    case kMismatchPending:
      return kDeadlock;
    case kDeadlock:
      return kFrozen;
    case kFrozen:
      return kStopped;
    case kStopped:
      return kDead;
    case kDead:
      return std::nullopt;
  }
  return std::nullopt;
}

// Goal:   a script that reads the verdict finds each word in the help and on the page, and none besides.
TEST(Hang, TheListedVerdictsAreThoseThatThereAre) {
  std::set<std::string> words{"engine_stuck"};
  for (std::optional verdict(blame::Report::Diagnosis::kHealthy); verdict; verdict = after(*verdict))
    words.insert(blame::diagnosis_name(*verdict));
  ASSERT_EQ(words.size(), 11u);

  const std::string help = kVerdictWords;
  std::set<std::string> listed;
  const std::regex line("\n  ([a-z_]+) ");
  for (std::sregex_iterator it(help.begin(), help.end(), line), end; it != end; ++it) listed.insert((*it)[1]);
  EXPECT_EQ(listed, words);

  std::ifstream file(std::string(MUSTER_SOURCE_DIR) + "/daemon/cli/README.md");
  const std::string page((std::istreambuf_iterator<char>(file)), {});
  for (const std::string& word : words) EXPECT_NE(page.find("`" + word + "`"), std::string::npos) << word;
}

}  // namespace
}  // namespace muster::cli
