// Planning: from a collective as its rank described it to a plan that runs on the direct path.
#pragma once

#include "api/client/direct/operation.hpp"

#include <cstdint>
#include <vector>

namespace muster::client {

// A collective as this rank described it, with addresses of this process and where they lie in its arena.
struct Described {
  std::uint64_t group = 0;
  const Nanos* deadline = nullptr;  // DirectPlan::deadline
  Collective what;
  Share mine;
  shm::PayloadLocation home;
  std::vector<shm::PayloadLocation> sends;
};

// `cores`: that this process may run on, which may be fewer than the machine has.
DirectPlan make_direct_plan(std::uint64_t handle, const Described& described, Channel& channel,
                            const Machine& machine, std::uint32_t cores);

}  // namespace muster::client
