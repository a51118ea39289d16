#include "daemon/engine/memory/arena.hpp"

#include "kernels/device/registry.hpp"

#include <algorithm>
#include <cstring>
#include <map>
#include <random>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace muster::engine {
namespace {

using ::testing::HasSubstr;

class ArenaTest : public ::testing::Test {
 protected:
  std::unique_ptr<device::Pool> pool_ = device::Pool::open_manual({});
  std::unique_ptr<device::Device> device_ = *device::open({}, *pool_);
  Arena arena_{*device_, {std::uint64_t{64} << 20, std::uint64_t{2} << 20}};
};

TEST_F(ArenaTest, GivesAlignedZeroedMemoryAlsoWhereSomebodyWroteBefore) {
  auto first = *arena_.allocate(100);
  EXPECT_EQ(first.bytes, 128u);
  EXPECT_EQ(first.offset % Arena::kAlignment, 0u);
  std::memset(first.data, 0x5a, 100);
  arena_.free(first);
  const auto again = *arena_.allocate(128);
  EXPECT_EQ(again.offset, first.offset);
  EXPECT_TRUE(std::all_of(again.data, again.data + 128, [](std::byte b) { return b == std::byte{0}; }));
}

TEST_F(ArenaTest, GrowsBySegmentsUpToItsLimit) {
  const auto large = arena_.allocate(std::uint64_t{40} << 20);
  ASSERT_TRUE(large);
  const auto second = arena_.allocate(std::uint64_t{40} << 20);
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code(), Code::kNoResource);
  EXPECT_THAT(second.error().message(), HasSubstr("limits.arena_per_rank_max"));
  EXPECT_FALSE(arena_.allocate(std::uint64_t{65} << 20));
  EXPECT_TRUE(arena_.allocate(1024));
}

// Goal:   an arena that needs little takes little, and one that needs much has few segments.
// Values: 2 MiB, as much again at each step, and no more than a segment at a time.
TEST_F(ArenaTest, DoublesUpToWholeSegments) {
  Arena arena(*device_, {std::uint64_t{1} << 30, std::uint64_t{8} << 20});
  std::vector<std::uint64_t> reserved;
  for (int mib = 0; mib < 32; ++mib) {
    ASSERT_TRUE(arena.allocate(std::uint64_t{1} << 20));
    const std::uint64_t now = arena.reserved_bytes() >> 20;
    if (reserved.empty() || reserved.back() != now) reserved.push_back(now);
  }
  EXPECT_EQ(reserved, (std::vector<std::uint64_t>{2, 4, 8, 16, 24, 32}));
  ASSERT_TRUE(arena.allocate(std::uint64_t{20} << 20));
  EXPECT_EQ(arena.reserved_bytes() >> 20, 52u) << "a buffer larger than a segment has one of its own";
}

// Goal:   a limit between two granules holds, whatever the device rounds up to.
TEST_F(ArenaTest, KeepsALimitThatIsNoMultipleOfAGranule) {
  Arena arena(*device_, {100'000'000, std::uint64_t{64} << 20});
  while (arena.allocate(std::uint64_t{1} << 20)) {
  }
  EXPECT_LE(arena.reserved_bytes(), 100'000'000u);
  EXPECT_FALSE(arena.allocate(std::uint64_t{4} << 20));
  EXPECT_LE(arena.reserved_bytes(), 100'000'000u);
}

// Goal:   grants never overlap, freed memory is found again, and what is used is counted.
// Method: random allocations and frees against a map of what is live.
TEST_F(ArenaTest, KeepsGrantsApart) {
  std::mt19937_64 random(7);
  std::map<std::pair<std::uint32_t, std::uint64_t>, Arena::Grant> live;
  std::uint64_t used = 0;
  for (int i = 0; i < 20000; ++i) {
    if (live.size() > 200 || (random() % 2 == 0 && !live.empty())) {
      const auto victim = std::next(live.begin(), static_cast<std::ptrdiff_t>(random() % live.size()));
      used -= victim->second.bytes;
      arena_.free(victim->second);
      live.erase(victim);
    } else {
      const auto grant = *arena_.allocate(1 + random() % 20000);
      used += grant.bytes;
      const auto [at, fresh] = live.emplace(std::pair{grant.segment, grant.offset}, grant);
      ASSERT_TRUE(fresh);
      if (const auto next = std::next(at); next != live.end() && next->first.first == grant.segment) {
        ASSERT_LE(grant.offset + grant.bytes, next->second.offset);
      }
      if (at != live.begin()) {
        const auto before = std::prev(at);
        if (before->first.first == grant.segment) {
          ASSERT_LE(before->second.offset + before->second.bytes, grant.offset);
        }
      }
    }
    ASSERT_EQ(arena_.used_bytes(), used);
  }
  for (const auto& [key, grant] : live) arena_.free(grant);
  EXPECT_EQ(arena_.used_bytes(), 0u);
  EXPECT_LE(arena_.reserved_bytes(), std::uint64_t{8} << 20) << "holes were not joined";
}

// Goal:   a piece of somebody's large pool counts as the piece.
TEST_F(ArenaTest, AdoptsAPieceOfMemoryThatIsLargerThanItsLimit) {
  const std::shared_ptr<device::Memory> pool = *device_->allocate(std::uint64_t{128} << 20);
  ASSERT_TRUE(arena_.adopt(pool, std::uint64_t{96} << 20, std::uint64_t{1} << 20));
  EXPECT_EQ(arena_.reserved_bytes(), std::uint64_t{1} << 20);
  const auto whole = arena_.adopt(pool, 0, pool->bytes());
  ASSERT_FALSE(whole);
  EXPECT_THAT(whole.error().message(), HasSubstr("limits.arena_per_rank_max"));
}

// Goal:   small pieces of a large memory take no more addresses than there are.
TEST_F(ArenaTest, BoundsWhatIsMappedBesideItsPieces) {
  const std::shared_ptr<device::Memory> pool = *device_->allocate(std::uint64_t{128} << 20);
  std::vector<Arena::Grant> pieces;
  auto piece = arena_.adopt(pool, 0, 64);
  for (; piece; piece = arena_.adopt(pool, 0, 64)) pieces.push_back(*piece);
  EXPECT_EQ(pieces.size(), Arena::kMappedBesideMax / (pool->bytes() - 64));
  EXPECT_EQ(piece.error().code(), Code::kNoResource);
  EXPECT_THAT(piece.error().message(), HasSubstr("import the memory once and use ranges of it"));
  arena_.free(pieces.back());
  EXPECT_TRUE(arena_.adopt(pool, 64, 64));
}

// Goal:   the caller of free() decides when adopted memory is unmapped, which may take long.
TEST_F(ArenaTest, HandsAdoptedMemoryBack) {
  std::shared_ptr<device::Memory> memory = *device_->allocate(4096);
  const std::weak_ptr<device::Memory> seen = memory;
  const auto grant = *arena_.adopt(std::move(memory), 0, 4096);
  auto back = arena_.free(grant);
  EXPECT_EQ(arena_.segment(grant.segment), nullptr);
  EXPECT_FALSE(seen.expired());
  back.reset();
  EXPECT_TRUE(seen.expired());
  EXPECT_EQ(arena_.free(*arena_.allocate(64)), nullptr) << "a hole of a segment";
}

TEST_F(ArenaTest, GivesHolesOfItsSegmentsAlsoWhenNoMoreCanBeToldApart) {
  ASSERT_TRUE(arena_.allocate(64));
  const std::shared_ptr<device::Memory> memory = *device_->allocate(4096);
  while (arena_.segment_count() < Arena::kSegmentsMax) arena_.free(*arena_.adopt(memory, 0, 64));
  EXPECT_EQ(arena_.adopt(memory, 0, 64).error().code(), Code::kNoResource);
  EXPECT_TRUE(arena_.allocate(64));
  EXPECT_EQ(arena_.allocate(std::uint64_t{4} << 20).error().code(), Code::kNoResource);
}

}  // namespace
}  // namespace muster::engine
