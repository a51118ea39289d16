#include "api/base/ids.hpp"

#include <gtest/gtest.h>

#include <type_traits>
#include <unordered_set>

namespace muster {
namespace {

static_assert(!std::is_convertible_v<Rank, GroupId>, "ids of two kinds do not mix");
static_assert(!std::is_convertible_v<std::uint32_t, Rank>, "a number becomes an id only by name");
static_assert(sizeof(Handle) == 8 && std::is_trivially_copyable_v<Handle>,
              "a handle crosses the shared ring");

TEST(Ids, OrderAndHashByValue) {
  EXPECT_LT(Rank(1), Rank(2));
  EXPECT_EQ(Rank(), Rank(0));
  std::unordered_set<Rank> ranks{Rank(1), Rank(2), Rank(1)};
  EXPECT_EQ(ranks.size(), 2U);
}

TEST(Handle, KeepsSlotAndGenerationApart) {
  const Handle handle(0xABCD, 0x1234'5678'9ABC);
  EXPECT_EQ(handle.slot(), 0xABCD);
  EXPECT_EQ(handle.generation(), 0x1234'5678'9ABCU);
  EXPECT_EQ(Handle(handle.bits), handle);
}

// Goal: a generation never spills into the slot, whatever the counter says.
TEST(Handle, MasksTheGenerationTo48Bits) {
  const Handle handle(1, (std::uint64_t{0xFFFF} << 48) | 5);
  EXPECT_EQ(handle.slot(), 1);
  EXPECT_EQ(handle.generation(), 5U);
}

TEST(Handle, IsInvalidWithoutAGeneration) {
  EXPECT_FALSE(Handle().valid());
  EXPECT_FALSE(Handle(0xFFFF, 0).valid());
  EXPECT_TRUE(Handle(0, 1).valid());
  EXPECT_TRUE(Handle(0xFFFF, Handle::kGenerationMask).valid());
}

}  // namespace
}  // namespace muster
