// Writes a job's trace from the daemon's descriptor to a file.
#pragma once

#include "daemon/cli/question.hpp"

#include <cstdint>
#include <optional>
#include <string>

namespace muster::cli {

// Whether the file that `option` names can be written, checked before there is a trace. Changes nothing.
std::optional<Trouble> check_writable(const char* option, const std::string& path);

// Writes beside `path` first, if possible, so that a full disk leaves no half file there.
std::optional<Trouble> write_whole(const std::string& text, const std::string& path);

// `answer`: of trace_end. Returns its bytes.
OrTrouble<std::uint64_t> write_trace(const DaemonAnswer& answer, const std::string& path);

}  // namespace muster::cli
