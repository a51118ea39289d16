#include "api/base/checkpoint/sampled_digest.hpp"

#include "api/base/checksum.hpp"

#include <algorithm>
#include <cstring>
#include <span>

namespace muster::checkpoint {

void SampledDigest::add(const std::byte* bytes, std::uint64_t at, std::uint64_t count) noexcept {
  while (count > 0) {
    const std::uint64_t block = at / kBlockBytes;
    const std::uint64_t skip = blocks_to_skip(block);
    const std::uint64_t end = (block + std::max<std::uint64_t>(skip, 1)) * kBlockBytes;
    const std::uint64_t part = std::min(count, end - at);
    if (skip == 0) {
      std::memcpy(block_.data() + sizeof(Hash128) + filled_, bytes, part);
      filled_ += part;
      if (at + part == end) take_block();
    }
    bytes += part;
    at += part;
    count -= part;
  }
}

void SampledDigest::take_block() noexcept {
  std::memcpy(block_.data(), &digest_, sizeof digest_);
  digest_ = checksum(std::span(block_).first(sizeof(Hash128) + filled_));
  filled_ = 0;
}

Hash128 SampledDigest::value() noexcept {
  if (filled_ > 0) take_block();
  return digest_;
}

}  // namespace muster::checkpoint
