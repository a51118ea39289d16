// The end of a client's process, as the kernel reports it to a process that is not its parent.
#pragma once

#include "api/shm/descriptor.hpp"

#include <cstdint>
#include <optional>
#include <string>

namespace muster::engine {

struct ProcessEnd {
  int status = 0;  // its own, or
  int signal = 0;  // the one that killed it
};

// How a process has ended. Linux 6.15 or later is needed if its parent has collected the status already.
// Nothing: the kernel does not report it, as of another user's process before its parent has collected the
// status.
std::optional<ProcessEnd> how_ended(const shm::Descriptor& pidfd, std::int32_t pid);

// The end of a process that sent no goodbye: "died of signal 9 (Killed)", "ended with status 0 without
// muster_close"; if it is not known how: "ended without muster_close".
std::string text_of(const std::optional<ProcessEnd>& end);

}  // namespace muster::engine
