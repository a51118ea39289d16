#include "api/base/pattern.hpp"

#include <string>

#include <gtest/gtest.h>

namespace muster {
namespace {

TEST(Patterns, FitWholeNames) {
  EXPECT_TRUE(fits_pattern("*", ""));
  EXPECT_TRUE(fits_pattern("layers.*.wq.weight", "layers.17.attention.wq.weight"));
  EXPECT_TRUE(fits_pattern("*wq*", "wq"));
  EXPECT_TRUE(fits_pattern("a*b*c", "aXbYbZc"));
  EXPECT_FALSE(fits_pattern("a*b*c", "aXbYbZ"));
  EXPECT_FALSE(fits_pattern("wq", "wq.weight"));
  EXPECT_FALSE(fits_pattern("", "x"));
  EXPECT_TRUE(fits_pattern("block?.*", "block0.query"));
  EXPECT_TRUE(fits_pattern("*.lora_*", "block0.query.lora_a"));
  EXPECT_TRUE(fits_pattern("a*b*c", "axxbyybzzc"));
  EXPECT_FALSE(fits_pattern("block", "block0"));
  EXPECT_FALSE(fits_pattern("a*b", "abc"));
  EXPECT_FALSE(fits_pattern("?", ""));
}

// Goal: no pattern takes long, as one does that is tried at each place again.
TEST(Patterns, WithManyStarsAreFast) {
  const std::string name(2000, 'a');
  std::string pattern;
  for (int i = 0; i < 300; ++i) pattern += "*a";
  EXPECT_FALSE(fits_pattern(pattern + "b", name));
  EXPECT_TRUE(fits_pattern(pattern + "*", name));
}

}  // namespace
}  // namespace muster
