// Seating: where the members of a group sit in each other's memory, and what a plan needs to run there.
#pragma once

#include "api/client/direct/memory.hpp"
#include "api/client/direct/operation.hpp"
#include "api/shm/control.hpp"

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace muster::client {

// What the engine says about a group.
struct Seating {
  std::uint64_t group = 0;  // handle
  std::uint32_t line = 0;   // of the group page
  std::uint32_t index = 0;  // this rank's
  std::vector<shm::DirectMember> members;
  std::uint64_t epoch = 0;  // in which this rank takes part
  std::uint64_t base = 0;   // of that epoch
};

// Maps the members' segments. Errors: PROTOCOL for seats that do not fit, and what the registrar says.
Result<std::unique_ptr<Channel>> open_channel(DirectMemory& memory, const Seating& seating, WaitHooks& hooks);

// A collective as this rank described it, with addresses of this process and their places in its arena.
struct Described {
  std::uint64_t group = 0;
  Collective what;
  Share mine;
  shm::Place home;
  std::vector<shm::Place> sends;
};

// `cores`: that this process may run on, which may be fewer than the machine has.
DirectPlan make_direct_plan(std::uint64_t handle, const Described& described, Channel& channel,
                            const Machine& machine, std::uint32_t cores);

}  // namespace muster::client
