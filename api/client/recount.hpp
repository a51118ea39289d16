// New counts for a plan, as pure functions: the collective that is said anew, its check, and the commands
// that tell the engine.
#pragma once

#include "api/base/status.hpp"
#include "api/client/description.hpp"
#include "api/client/direct/planning.hpp"
#include "api/shm/command.hpp"
#include "api/shm/control.hpp"

#include <muster/muster.h>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace muster::client {

// The collective of an earlier message, without its counts.
muster_collective said_before(const shm::PlanCollective& message);

// Whether the blocks fit into `source` and `target` bytes of their buffers; an element has `element` bytes.
Status check_rooms(const Described& described, std::size_t element, std::uint64_t source,
                   std::uint64_t target);

// Numbers first, the command that puts them into force last.
std::vector<shm::Command> recount_commands(muster_plan plan, const Description& description);

}  // namespace muster::client
