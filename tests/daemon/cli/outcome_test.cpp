#include "daemon/cli/outcome.hpp"

#include <gtest/gtest.h>

namespace muster::cli {
namespace {

Json printed(const Json& object) {
  testing::internal::CaptureStdout();
  EXPECT_EQ(print_json(object), kOk);
  return Json::parse(testing::internal::GetCapturedStdout());
}

// Goal:   a reader that takes numbers as doubles, as JavaScript and jq do, gets the value that was written.
TEST(PrintJson, WritesWhatADoubleDoesNotHoldAsText) {
  constexpr std::int64_t kLast = (std::int64_t{1} << 53) - 1;
  const Json said = printed({{"small", 7},
                             {"last", kLast},
                             {"first", -kLast},
                             {"beyond", kLast + 1},
                             {"below", -kLast - 1},
                             {"largest", UINT64_MAX},
                             {"half", 0.5},
                             {"deep", {{{"bytes", Json::array({1, UINT64_MAX})}}}}});
  EXPECT_EQ(said.at("small"), 7);
  EXPECT_EQ(said.at("last"), kLast);
  EXPECT_EQ(said.at("first"), -kLast);
  EXPECT_EQ(said.at("beyond"), "9007199254740992");
  EXPECT_EQ(said.at("below"), "-9007199254740992");
  EXPECT_EQ(said.at("largest"), "18446744073709551615");
  EXPECT_EQ(said.at("half"), 0.5);
  EXPECT_EQ(said.at("deep").at(0).at("bytes"), Json::array({1, "18446744073709551615"}));
  EXPECT_EQ(said.at("schema_version"), kSchemaVersion);
}

TEST(Complain, LetsNoControlCharacterThroughAndSaysNothingWhereThereIsNothing) {
  testing::internal::CaptureStderr();
  EXPECT_EQ(complain({kUsage, "no file \x1b[31mred\x07"}), kUsage);
  EXPECT_EQ(complain({kInterrupted, ""}), kInterrupted);
  warn("of \x1b");
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "muster: no file ?[31mred?\nmuster: warning: of ?\n");
}

}  // namespace
}  // namespace muster::cli
