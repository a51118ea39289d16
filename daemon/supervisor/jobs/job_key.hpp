// The key of a job. A client that shows it with the job's name belongs to that job, in any container and on
// any node. Only the key's digest is kept, sent and logged.
#pragma once

#include "api/base/result.hpp"

#include <string>
#include <string_view>

namespace muster::supervisor {

constexpr std::size_t kJobKeyBytesMin = 16;

// 128 bits of SHA-256, in hex, as control::Actor has it; empty for no key. kBadArgument: the key is shorter
// than kJobKeyBytesMin, and so could be guessed from its digest.
Result<std::string> digest_of_key(std::string_view key);

}  // namespace muster::supervisor
