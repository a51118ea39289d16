// A job's trace, from the daemon's descriptor to a file.
#pragma once

#include "daemon/cli/question.hpp"

#include <cstdint>
#include <string>

namespace muster::cli {

// The answer to trace_end. Written beside `path` first, so that a full disk leaves no half of a trace there.
// Returns its bytes.
Outcome<std::uint64_t> write_trace(const Answer& answer, const std::string& path);

}  // namespace muster::cli
