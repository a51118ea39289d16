// Counts by tag, against a plain table, and how much they keep.
#include "api/base/collective/tag_counts.hpp"

#include <cstdint>
#include <limits>
#include <map>
#include <random>

#include <gtest/gtest.h>

namespace muster {
namespace {

constexpr std::uint32_t kLast = std::numeric_limits<std::uint32_t>::max();

TEST(TagCounts, AreZeroAtFirst) {
  const TagCounts counts;
  for (const std::uint32_t tag : {0u, 1u, kLast}) EXPECT_EQ(counts.of(tag), 0u);
}

// Method: random tags of a small range at both ends of all tags, up, down and set.
TEST(TagCounts, AreThoseOfATable) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    const auto below = [&random](std::uint64_t most) { return random() % most; };
    TagCounts counts;
    std::map<std::uint32_t, std::uint64_t> table;
    for (int i = 0; i < 2000; ++i) {
      const auto near = static_cast<std::uint32_t>(below(200));
      const std::uint32_t tag = below(2) == 0 ? near : kLast - near;
      const std::uint64_t way = below(4);
      if (way == 0 && table[tag] > 0) {
        ASSERT_EQ(counts.decrement(tag), --table[tag]);
      } else if (way == 1) {
        counts.set(tag, table[tag] = below(3));
      } else {
        ASSERT_EQ(counts.increment(tag), ++table[tag]);
      }
    }
    for (std::uint32_t near = 0; near <= 200; ++near)
      for (const std::uint32_t tag : {near, kLast - near}) ASSERT_EQ(counts.of(tag), table[tag]) << tag;
    counts.clear();
    EXPECT_EQ(counts.of(kLast), 0u);
  }
}

// Goal:   a program may give each message a tag of its own for ever.
TEST(TagCounts, KeepLittleWhereEachTagIsUsedOnceInOrder) {
  TagCounts up, down;
  for (std::uint32_t i = 0; i < 100'000; ++i) {
    up.increment(i);
    down.increment(kLast - i);
    ASSERT_LE(up.entries(), 65u);
    ASSERT_LE(down.entries(), 65u);
  }
}

TEST(TagCounts, KeepTheEntriesOfTagsThatRecur) {
  TagCounts counts;
  for (const std::uint32_t tag : {0u, 1u, 2u}) counts.increment(tag);
  const std::size_t entries = counts.entries();
  for (int i = 0; i < 100; ++i)
    for (const std::uint32_t tag : {0u, 1u, 2u}) {
      counts.increment(tag);
      ASSERT_EQ(counts.entries(), entries) << "an entry that comes and goes takes heap each time";
    }
}

}  // namespace
}  // namespace muster
