// The key of a job: whoever shows it and the job's name is of that job, in whatever container or on whatever
// node. Only its digest is kept, sent and logged.
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
