#include "daemon/supervisor/base/random_source.hpp"

#include <array>
#include <cstring>

#include <fmt/format.h>
#include <openssl/rand.h>

namespace muster::supervisor {

std::string random_hex() {
  std::array<unsigned char, 32> bytes{};
  if (RAND_bytes(bytes.data(), static_cast<int>(bytes.size())) != 1) return {};
  std::string text;
  for (const unsigned char byte : bytes) text += fmt::format("{:02x}", byte);
  return text;
}

std::uint64_t random_word() {
  std::array<unsigned char, sizeof(std::uint64_t)> bytes{};
  if (RAND_bytes(bytes.data(), static_cast<int>(bytes.size())) != 1) return 0;
  std::uint64_t word = 0;
  std::memcpy(&word, bytes.data(), sizeof word);
  return word;
}

}  // namespace muster::supervisor
