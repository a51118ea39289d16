// The arithmetic of a collective between members of one address space, cut into parts that are independent of
// each other.
#pragma once

#include "transport/collective/communicator.hpp"

#include <cstddef>
#include <cstdint>
#include <span>

namespace muster::transport::loopback {

inline constexpr std::int32_t kRanksMax = 1024;              // members on one node
inline constexpr std::size_t kPartTrafficBytes = 256 << 10;  // read and written by one part, about

// Into how many parts a valid collective is cut; 0 where there is nothing to do. A function of its arguments
// alone, so results do not depend on the machine.
std::uint32_t part_count(const Collective& collective, std::int32_t ranks);

// Runs one part. `members` are in order of index (SEND and RECV: sender, then receiver) and checked. Parts
// touch disjoint memory: any order, any thread.
void execute_part(const Collective& collective, std::span<const Member> members, std::int32_t ranks,
                  std::uint32_t part);

}  // namespace muster::transport::loopback
