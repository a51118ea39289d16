// How a client's process has ended, as the kernel tells somebody who is not its parent.
#pragma once

#include "api/shm/descriptor.hpp"

#include <cstdint>
#include <optional>
#include <string>

namespace muster::engine {

struct ProcessEnd {
  int status = 0;  // its own, or
  int signal = 0;  // what killed it
};

// Of a process that has ended. Its parent may not have asked yet, or may have: then Linux 6.15 or later is
// needed. Nothing: the kernel does not say, as of another user's process before its parent has asked.
std::optional<ProcessEnd> how_ended(const shm::Descriptor& pidfd, std::int32_t pid);

// Of one that never said goodbye: "died of signal 9 (Killed)", "ended with status 0 without muster_close"; if
// it is not known how: "ended without muster_close".
std::string text_of(const std::optional<ProcessEnd>& end);

}  // namespace muster::engine
