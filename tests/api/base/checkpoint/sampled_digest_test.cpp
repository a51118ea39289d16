#include "api/base/checkpoint/sampled_digest.hpp"

#include <algorithm>
#include <random>
#include <vector>

#include <gtest/gtest.h>

namespace muster::checkpoint {
namespace {

Hash128 digest_of(const std::vector<std::byte>& box, std::uint64_t turn, std::uint64_t run) {
  SampledDigest digest(box.size(), turn);
  for (std::uint64_t at = 0; at < box.size(); at += run)
    digest.add(box.data() + at, at, std::min<std::uint64_t>(run, box.size() - at));
  return digest.value();
}

std::vector<std::byte> random_box(std::size_t bytes) {
  std::mt19937_64 random(bytes);
  std::vector<std::byte> box(bytes);
  for (std::byte& each : box) each = static_cast<std::byte>(random());
  return box;
}

// Goal:   replicas whose memory has other runs, as a shard in rows has, have one digest.
TEST(SampledDigest, IsTheSameInAnyRuns) {
  for (const std::size_t bytes : {1UL, 4096UL, 65536UL, 65537UL, 1000000UL}) {
    const std::vector<std::byte> box = random_box(bytes);
    for (const std::uint64_t turn : {0UL, 3UL, 15UL, 1234567UL})
      for (const std::uint64_t run : {7UL, 4095UL, 4096UL, 5000UL, 200000UL})
        ASSERT_EQ(digest_of(box, turn, run), digest_of(box, turn, bytes))
            << bytes << " " << turn << " " << run;
  }
}

// Goal:   each byte of a small box counts always, and each byte of a large one in one of sixteen turns.
TEST(SampledDigest, ReadsEachByteInSomeTurn) {
  std::mt19937_64 random(1);
  for (const std::size_t bytes : {500UL, 65536UL, 70000UL, 300001UL}) {
    const std::vector<std::byte> box = random_box(bytes);
    for (int i = 0; i < 50; ++i) {
      std::vector<std::byte> other = box;
      other[random() % bytes] ^= std::byte{1};
      std::uint64_t seen = 0;
      for (std::uint64_t turn = 0; turn < SampledDigest::kEvery; ++turn)
        seen += digest_of(other, turn, bytes) != digest_of(box, turn, bytes);
      ASSERT_EQ(seen, bytes <= SampledDigest::kAllBytes ? SampledDigest::kEvery : 1) << bytes;
    }
  }
}

// Goal:   any turn finds a tensor that has drifted as a whole.
TEST(SampledDigest, SeesInAnyTurnWhatDiffersEverywhere) {
  const std::vector<std::byte> box = random_box(300001);
  std::vector<std::byte> other = box;
  for (std::byte& each : other) each ^= std::byte{1};
  for (std::uint64_t turn = 0; turn < SampledDigest::kEvery; ++turn)
    EXPECT_NE(digest_of(other, turn, box.size()), digest_of(box, turn, box.size()));
}

}  // namespace
}  // namespace muster::checkpoint
