// New counts for a plan, as pure functions: their check, and the commands that tell the engine.
#pragma once

#include "api/base/status.hpp"
#include "api/client/direct/planning.hpp"
#include "api/client/run/description.hpp"
#include "api/shm/command.hpp"

#include <muster/muster.h>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace muster::client {

// Refuses blocks that do not fit into `source` and `target` bytes of room; an element has `element` bytes.
Status check_rooms(const Described& described, std::size_t element, std::uint64_t source,
                   std::uint64_t target);

// The commands with the numbers, and last the one that puts them into force.
std::vector<shm::Command> recount_commands(muster_plan plan, const Description& description);

}  // namespace muster::client
