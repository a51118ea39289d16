// MemberRegions: where the members of a group publish their words, in each one's direct segment.
#pragma once

#include "api/client/direct/channel.hpp"
#include "api/client/direct/memory.hpp"
#include "api/shm/control.hpp"

#include <cstdint>
#include <memory>
#include <vector>

namespace muster::client {

// A group as the engine describes it to this rank.
struct MemberRegions {
  std::uint64_t group = 0;  // handle
  std::uint32_t line = 0;   // of the group page
  std::uint32_t index = 0;  // this rank's
  std::vector<shm::DirectMember> members;
  std::uint64_t epoch = 0;  // in which this rank takes part
  std::uint64_t base = 0;   // of that epoch
};

// Maps the members' segments. Errors: PROTOCOL for regions that do not fit, and those of the registrar.
Result<std::unique_ptr<Channel>> open_channel(DirectMemory& memory, const MemberRegions& regions,
                                              WaitHooks& hooks);

}  // namespace muster::client
