#include "daemon/supervisor/jobs/job_key.hpp"

#include "api/shm/message.hpp"
#include "daemon/control/identity.hpp"

#include <array>

#include <fmt/format.h>
#include <openssl/evp.h>
#include <openssl/sha.h>

namespace muster::supervisor {

Result<std::string> digest_of_key(std::string_view key) {
  if (key.empty()) return std::string();
  if (key.size() < kJobKeyBytesMin || key.size() >= shm::kJobKeyBytes)
    return fail(Code::kBadArgument,
                "the job's key has {} bytes, and must have {} to {}; `openssl rand -hex 32` prints one",
                key.size(), kJobKeyBytesMin, shm::kJobKeyBytes - 1);
  if (shm::has_control(key))
    return fail(Code::kBadArgument,
                "the job's key has a control character; `openssl rand -hex 32` prints a good one");
  std::array<unsigned char, SHA256_DIGEST_LENGTH> digest{};
  if (EVP_Digest(key.data(), key.size(), digest.data(), nullptr, EVP_sha256(), nullptr) != 1)
    return fail(Code::kInternal, "OpenSSL has no SHA-256");
  std::string text;
  for (std::size_t i = 0; i < control::kKeyDigestChars / 2; ++i) text += fmt::format("{:02x}", digest[i]);
  return text;
}

}  // namespace muster::supervisor
