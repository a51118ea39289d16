// The command line of winds: values that it refuses, and with which words.
#include "api/examples/training/errors.hpp"
#include "api/examples/winds/options.hpp"

#include <initializer_list>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace winds {
namespace {

using ::testing::HasSubstr;

Options parsed(std::initializer_list<const char*> words) {
  std::vector<const char*> all{"winds"};
  all.insert(all.end(), words);
  return parse_options(static_cast<int>(all.size()), all.data()).value();
}
std::string why(std::initializer_list<const char*> words) {
  try {
    parsed(words);
  } catch (const training::UsageError& error) {
    return error.what();
  }
  return "";
}

TEST(WindsOptions, TakesACutOfRowsAndColumns) {
  const Options options = parsed({"--cut", "2x3"});
  ASSERT_TRUE(options.cut);
  EXPECT_EQ(options.cut->rows, 2);
  EXPECT_EQ(options.cut->columns, 3);
  EXPECT_FALSE(parsed({}).cut);
}

TEST(WindsOptions, RefusesByName) {
  for (const char* cut : {"2", "x", "2x", "x2", "0x2", "2x-1", "2x2x2", "axb", "2 x 2"})
    EXPECT_THAT(why({"--cut", cut}), HasSubstr("--cut is \"" + std::string(cut) + "\"")) << cut;
  EXPECT_THAT(why({"--width", "6"}), HasSubstr("--width 6 is not a multiple of 4"));
  EXPECT_THAT(why({"--lr", "0"}), HasSubstr("--lr"));
  EXPECT_THAT(why({"--save-every", "3"}), HasSubstr("--save-every needs --save"));
  EXPECT_THAT(why({"--resume", "x", "--verify"}), HasSubstr("--verify"));
  EXPECT_THAT(why({"--scatter", "--cut", "2x2"}), HasSubstr("--scatter sends whole rows"));
  EXPECT_THAT(why({"--stesp", "3"}), HasSubstr("did you mean --steps?"));
  EXPECT_THAT(why({"--mesh", "domain=2"}), HasSubstr("is an option of muster run"));
  EXPECT_THAT(why({"--field", ""}), HasSubstr("--field"));
}

}  // namespace
}  // namespace winds
