// The commands that ask a running daemon and print its answer.
#pragma once

#include "daemon/cli/question.hpp"

#include <cstdint>
#include <string>

namespace muster::cli {

int run_version(const DaemonAddress& address, Output output);
int run_status(const DaemonAddress& address, Output output);  // kUnhealthy while it shuts down
int run_jobs(const DaemonAddress& address, Output output);
int run_groups(const DaemonAddress& address, const std::string& job, Output output);
int run_token(const DaemonAddress& address, const std::string& job, std::uint32_t rank, Output output);
int run_end(const DaemonAddress& address, const std::string& job, Output output);
// All jobs of a batch job: "slurm:1234". None is no fault.
int run_end_of(const DaemonAddress& address, const std::string& of, Output output);
enum class Leave : std::uint8_t { kDrain, kNow };
int run_shutdown(const DaemonAddress& address, Leave leave, Output output);

enum class Recording : std::uint8_t { kNew, kThatIsOn };
// Records for `seconds`, or until interrupted, and writes the trace to `path`. kThatIsOn: ends and writes a
// recording that another user began. Interrupted while it waits for an answer, it writes nothing.
int run_trace(const DaemonAddress& address, const std::string& job, const std::string& path, double seconds,
              Recording which, Output output);

}  // namespace muster::cli
