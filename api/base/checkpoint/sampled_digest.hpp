// SampledDigest: by what two members compare their replicas of a box without reading all of it.
#pragma once

#include "api/base/hash.hpp"

#include <array>
#include <cstddef>
#include <cstdint>

namespace muster::checkpoint {

// Of the bytes of a box in row-major order, however they are given: of all, or, of a box larger than
// kAllBytes, of one block in kEvery. Another `turn` takes other blocks, and kEvery turns in a row take each
// one.
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

  // The bytes of the box from `at` on, behind all that were added before.
  void add(const std::byte* bytes, std::uint64_t at, std::uint64_t count) noexcept;
  Hash128 value() noexcept;

 private:
  // How many blocks lie before the next one that is read; 0: this one is.
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
