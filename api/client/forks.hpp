// How often this process has been forked off: what tells a session that it woke up in a child, at the price
// of one load.
#pragma once

#include "api/base/status.hpp"

#include <cstdint>

namespace muster::client {

// Begins to count, once per process. Errors: NO_RESOURCE.
Status count_forks();

// Forks between the first count_forks() and this process; a child has one more than its parent.
std::uint32_t forks() noexcept;

}  // namespace muster::client
