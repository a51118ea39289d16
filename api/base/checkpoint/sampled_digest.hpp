// SampledDigest: members compare it to check their replicas of a box without reading all of it.
#pragma once

#include "api/base/hash.hpp"

#include <array>
#include <cstddef>
#include <cstdint>

namespace muster::checkpoint {

// A digest of a box's bytes in row-major order; it does not depend on how add() cuts them. It reads all of a
// box up to kAllBytes, and one block in kEvery of a larger one. Another `turn` reads other blocks, and kEvery
// turns in a row read each block.
//
// Owns    the block that it reads.
// Thread  one.
// Bound   a block.
// Fails   never.
class SampledDigest {
 public:
  static constexpr std::uint64_t kBlockBytes = 4096;
  static constexpr std::uint64_t kEvery = 16;
  static constexpr std::uint64_t kAllBytes = 64 << 10;

  SampledDigest(std::uint64_t box_bytes, std::uint64_t turn) : all_(box_bytes <= kAllBytes), turn_(turn) {}

  // The bytes of the box from `at` on, behind all earlier ones.
  void add(const std::byte* bytes, std::uint64_t at, std::uint64_t count) noexcept;
  Hash128 value() noexcept;

 private:
  // The number of blocks before the next one that is read; 0: this one is.
  std::uint64_t blocks_to_skip(std::uint64_t block) const {
    return all_ ? 0 : (kEvery - (block + turn_) % kEvery) % kEvery;
  }
  void take_block() noexcept;

  bool all_;
  std::uint64_t turn_;
  std::uint64_t filled_ = 0;
  Hash128 digest_;
  std::array<std::byte, sizeof(Hash128) + kBlockBytes> block_;  // behind the digest of those before it
};

}  // namespace muster::checkpoint
