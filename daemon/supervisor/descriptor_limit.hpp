// How many file descriptors the configured limits can take, and whether this process may open so many.
#pragma once

#include "daemon/supervisor/supervisor.hpp"

#include <cstdint>

namespace muster::supervisor {

// Of the supervisor or of one engine with all sessions, whichever is more. Segments of arenas beyond the
// first of each rank, names and imports are not counted: they come with use, and an engine refuses them
// before they take what a rank needs to attach (daemon/engine/counted_device.hpp).
std::uint64_t descriptors_needed(const Options& options);

// Raises RLIMIT_NOFILE to the hard limit, for this process and its engines. kNoResource if that is below
// `needed`.
Status raise_descriptor_limit(const Options& options);

}  // namespace muster::supervisor
