#include "api/base/spelling.hpp"

#include <vector>

#include <gtest/gtest.h>

namespace muster {
namespace {

TEST(Closest, FindsTheWordThatWasMeant) {
  const std::vector<std::string> words{"socket_path", "socket_mode", "runtime_directory", "workers", "group",
                                       "tp",          "pp"};
  const auto meant = [&](std::string_view word) { return closest(word, words).value_or(""); };
  EXPECT_EQ(meant("socket_pth"), "socket_path");
  EXPECT_EQ(meant("worker"), "workers");
  EXPECT_EQ(meant("wrokers"), "workers");
  EXPECT_EQ(meant("WORKERS"), "workers");
  EXPECT_EQ(meant("runtime_dir"), "runtime_directory");
  EXPECT_EQ(meant("directory"), "runtime_directory");
  EXPECT_EQ(meant("socket"), "");  // two answers are none
  EXPECT_EQ(meant("zebra"), "");
  EXPECT_EQ(meant("x"), "");
  EXPECT_EQ(closest("tpp", std::vector<std::string>{"pp", "tp"}), "tp") << "the first letter is seldom wrong";
  EXPECT_EQ(closest("tpp", std::vector<std::string>{"tp", "pp"}), "tp");
  EXPECT_FALSE(closest("row", std::vector<std::string>{"job"})) << "one letter of three in common";
  EXPECT_EQ(meant(""), "");
  EXPECT_FALSE(closest("x", std::vector<std::string>{"y"})) << "no letter in common";
  EXPECT_EQ(meant(std::string(100000, 'a')), "");
}

}  // namespace
}  // namespace muster
