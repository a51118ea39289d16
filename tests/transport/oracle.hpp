// What a collective must leave in memory: plain loops over one byte array that holds every member's vectors.
// It shares no code with the backends; reductions follow the documented order through
// tests/kernels/math/scalar_reduce.hpp.
#pragma once

#include "tests/kernels/math/scalar_reduce.hpp"
#include "transport/collective/communicator.hpp"

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

namespace muster::transport::test {

inline constexpr std::size_t kNowhere = static_cast<std::size_t>(-1);

// Where a member's vectors lie in the arena; kNowhere for a side that is not used.
struct Placement {
  std::int32_t index = 0;
  std::size_t source = kNowhere;
  std::size_t target = kNowhere;
};

// Length of each member's block.
inline std::vector<std::uint64_t> block_lengths(const Collective& c, std::int32_t ranks) {
  return c.counts.empty() ? std::vector<std::uint64_t>(static_cast<std::size_t>(ranks), c.count) : c.counts;
}

// The arena after the collective. `members` are in order of index (SEND, RECV: sender, receiver).
inline std::vector<std::byte> oracle(const Collective& c, std::int32_t ranks,
                                     const std::vector<Placement>& members,
                                     const std::vector<std::byte>& before, std::size_t element_bytes) {
  std::vector<std::byte> after = before;
  std::vector<const std::byte*> sources;
  for (const Placement& m : members) sources.push_back(before.data() + (m.source == kNowhere ? 0 : m.source));
  const auto copy = [&](std::size_t to, const std::byte* from, std::uint64_t count) {
    if (count > 0) std::memcpy(after.data() + to, from, count * element_bytes);
  };
  switch (c.op) {
    case MUSTER_ALL_REDUCE: {
      std::vector<std::byte> result(c.count * element_bytes);
      math::test::scalar_reduce(c.dtype, c.redop, sources, result.data(), c.count, c.scale);
      for (const Placement& m : members) copy(m.target, result.data(), c.count);
      break;
    }
    case MUSTER_REDUCE_SCATTER: {
      std::uint64_t offset = 0;
      const std::vector<std::uint64_t> lengths = block_lengths(c, ranks);
      for (std::size_t r = 0; r < members.size(); offset += lengths[r++]) {
        std::vector<const std::byte*> blocks;
        for (const std::byte* source : sources) blocks.push_back(source + offset * element_bytes);
        std::vector<std::byte> result(lengths[r] * element_bytes);
        math::test::scalar_reduce(c.dtype, c.redop, blocks, result.data(), lengths[r], c.scale);
        copy(members[r].target, result.data(), lengths[r]);
      }
      break;
    }
    case MUSTER_ALL_GATHER: {
      std::uint64_t offset = 0;
      const std::vector<std::uint64_t> lengths = block_lengths(c, ranks);
      for (std::size_t r = 0; r < members.size(); offset += lengths[r++])
        for (const Placement& m : members) copy(m.target + offset * element_bytes, sources[r], lengths[r]);
      break;
    }
    case MUSTER_BROADCAST:
      for (const Placement& m : members) copy(m.target, sources[static_cast<std::size_t>(c.root)], c.count);
      break;
    case MUSTER_SEND:
    case MUSTER_RECV:
      copy(members[1].target, sources[0], c.count);
      break;
    default:
      break;
  }
  return after;
}

}  // namespace muster::transport::test
