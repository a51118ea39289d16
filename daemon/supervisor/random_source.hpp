// Chance for tokens and epochs, from the system's generator by way of OpenSSL.
#pragma once

#include <cstdint>
#include <string>

namespace muster::supervisor {

// 32 random bytes as 64 hex digits. Empty if there is no chance to be had: an empty token opens nothing.
std::string random_hex();
// 0 in that case, which no job's epoch is.
std::uint64_t random_word();

}  // namespace muster::supervisor
