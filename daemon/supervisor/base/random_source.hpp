// Random numbers for tokens and epochs, from the system's generator through OpenSSL.
#pragma once

#include <cstdint>
#include <string>

namespace muster::supervisor {

// 32 random bytes as 64 hex digits. Empty if the generator fails: an empty token opens nothing.
std::string random_hex();
// 0 if the generator fails; no job has epoch 0.
std::uint64_t random_word();

}  // namespace muster::supervisor
