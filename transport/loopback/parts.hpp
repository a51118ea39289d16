// The arithmetic of a collective between members of one address space, cut into parts that are independent of
// each other.
#pragma once

#include "api/base/collective/collective.hpp"

#include <cstddef>
#include <cstdint>
#include <span>

namespace muster::transport::loopback {

inline constexpr std::size_t kPartTrafficBytes = 256 << 10;  // about what one part reads and writes

// A member's half of a collective, and where its vectors begin. `source` and `target` of the share are not
// looked at. Without initialisers, so that room for many members costs nothing before it is used.
struct Member {
  const Share* share;
  const std::byte* source;
  std::byte* target;
  bool passive;  // LocalMember::passive
};

// A collective as one row of elements, cut into parts.
//
// The row consists of stretches, one after the other: the whole vector (ALL_REDUCE, BROADCAST, REDUCE, SEND,
// RECV), the block of each member (ALL_GATHER, REDUCE_SCATTER, GATHER, SCATTER), or all that a member gets
// (ALL_TO_ALL, EXCHANGE).
struct CollectiveRow {
  const Collective* collective = nullptr;
  std::span<const Member> members;  // in order of index; SEND and RECV: sender, receiver; EXCHANGE: some
  std::span<const std::uint64_t> starts;  // where each stretch begins in the row, then the row's end
  std::uint64_t part_elements = 1;
  std::uint32_t parts = 0;  // 0 where there is nothing to do
  bool streams = false;     // targets are written with stores that bypass the cache
};

// Cuts a valid collective. The cut depends on the arguments alone, so results do not depend on the machine.
// `starts` has room for members + 1 values. `starts`, the collective and the members outlive the job.
CollectiveRow cut(const Collective& collective, std::span<const Member> members,
                  std::span<std::uint64_t> starts);

// Runs one part. Parts touch disjoint memory: any order, any thread.
void execute_part(const CollectiveRow& job, std::uint32_t part);

}  // namespace muster::transport::loopback
