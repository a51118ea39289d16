#include "api/base/hash.hpp"

#include <gtest/gtest.h>

namespace muster {
namespace {

TEST(Hash128, AddsAndSubtractsModuloTwoToThe128) {
  Hash128 a{~std::uint64_t{0}, ~std::uint64_t{0}};
  a += {1, 0};
  EXPECT_TRUE(a.zero());
  a -= {1, 0};
  EXPECT_EQ(a, (Hash128{~std::uint64_t{0}, ~std::uint64_t{0}}));
  a += {5, 7};
  EXPECT_EQ(a, (Hash128{4, 7}));
  a -= {5, 6};
  EXPECT_EQ(a, (Hash128{~std::uint64_t{0}, 0}));
}

TEST(Hash128, IsWrittenWithItsHighestDigitFirst) {
  EXPECT_EQ((Hash128{.low = 0xab, .high = 1}).hex(), "000000000000000100000000000000ab");
}

}  // namespace
}  // namespace muster
