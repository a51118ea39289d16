// A job's trace, from the daemon's descriptor to a file.
#pragma once

#include "daemon/cli/question.hpp"

#include <cstdint>
#include <optional>
#include <string>

namespace muster::cli {

// Whether the file could be written, asked before there is anything to write. Changes nothing.
std::optional<Trouble> check_writable(const std::string& path);

// The answer to trace_end. Written beside `path` first, where that is possible, so that a full disk leaves no
// half of a trace there. Returns its bytes.
OrTrouble<std::uint64_t> write_trace(const DaemonAnswer& answer, const std::string& path);

}  // namespace muster::cli
