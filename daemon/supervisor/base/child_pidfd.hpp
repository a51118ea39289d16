// The pidfd of a child of this process that has just been made.
#pragma once

#include "api/base/result.hpp"
#include "api/shm/descriptor.hpp"

#include <sys/types.h>

namespace muster::supervisor {

// kNoResource; then the child is ended and reaped, since nobody could wait for it any more.
Result<shm::Descriptor> pidfd_of_child(pid_t pid);

}  // namespace muster::supervisor
