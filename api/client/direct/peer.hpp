// Peer: a member of a group, as the others see its words in shared memory.
#pragma once

#include "api/shm/direct.hpp"
#include "api/shm/untrusted.hpp"

#include <cstddef>
#include <cstdint>

namespace muster::client {

struct Peer {
  std::int32_t rank = 0;  // world rank
  const shm::DirectHeader* header = nullptr;
  const std::byte* stages = nullptr;
  const shm::MemberRegion* region = nullptr;
  const std::byte* slots = nullptr;        // two of kSlotBytes
  const std::uint64_t* life = nullptr;     // of its rank, on the group page
  const shm::DirectPair* pairs = nullptr;  // one per member of the group
};

// Loads a word that another process writes. Acquire: what that process wrote before the word is visible too.
inline std::uint64_t look(const std::uint64_t* word) {
  return shm::Untrusted<std::uint64_t>(word).load_acquire();
}

}  // namespace muster::client
