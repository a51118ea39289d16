// How many file descriptors the configured limits can take, and whether this process may open so many.
#pragma once

#include "daemon/supervisor/program/supervisor.hpp"

#include <cstdint>

namespace muster::supervisor {

// The larger of the supervisor's need and that of one engine with all sessions. Only the first arena segment
// of each rank counts, and no names or imports. An engine refuses further ones before they take what a rank
// needs to attach (daemon/engine/memory/counted_device.hpp).
std::uint64_t descriptors_needed(const Options& options);

// Raises RLIMIT_NOFILE to the hard limit, for this process and its engines. kNoResource if that is below
// descriptors_needed().
Status raise_descriptor_limit(const Options& options);

}  // namespace muster::supervisor
