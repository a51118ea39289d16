// Dropout: a counter-based generator chooses the elements that become zero; the others are scaled.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "kernels/kernel.hpp"

namespace muster::kernels::dropout {

// The four words of Philox4x32-10 (Salmon et al., SC'11), all in the order of Random123's test vectors.
constexpr std::array<std::uint32_t, 4> philox(std::array<std::uint32_t, 4> counter,
                                              std::array<std::uint32_t, 2> key) {
  auto [c0, c1, c2, c3] = counter;
  auto [k0, k1] = key;
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t first = std::uint64_t{0xd2511f53} * c0;
    const std::uint64_t second = std::uint64_t{0xcd9e8d57} * c2;
    c0 = static_cast<std::uint32_t>(second >> 32) ^ c1 ^ k0;
    c1 = static_cast<std::uint32_t>(second);
    c2 = static_cast<std::uint32_t>(first >> 32) ^ c3 ^ k1;
    c3 = static_cast<std::uint32_t>(first);
    k0 += 0x9e3779b9;
    k1 += 0xbb67ae85;
  }
  return {c0, c1, c2, c3};
}

// Rows in order of op. Parts are ranges of elements in row-major order. Whether an element is kept depends on
// the seed and its index in the whole tensor alone, so a shard of consecutive elements equals the whole's.
std::span<const Kernel> rows();

}  // namespace muster::kernels::dropout
