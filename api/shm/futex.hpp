// The two futex calls, on words that several processes map.
#pragma once

#include "api/base/clock.hpp"

#include <cstdint>

namespace muster::shm {

// Sleeps while *word is `seen`, at most `limit`. May return early without a reason: test again. The word may
// lie in a read-only mapping. The engine never calls this on a word that a client can write.
void futex_wait(const std::uint32_t* word, std::uint32_t seen, Nanos limit) noexcept;

// Wakes every sleeper on the word, in any process. Never blocks.
void futex_wake(const std::uint32_t* word) noexcept;

}  // namespace muster::shm
