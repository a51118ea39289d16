// Turns a client's description of work into a plan: looks up every handle, and checks every offset, size and
// stride against its buffer.
#pragma once

#include "api/base/world.hpp"
#include "api/shm/control.hpp"
#include "daemon/engine/session/group_table.hpp"
#include "daemon/engine/session/session_buffers.hpp"
#include "kernels/kernel.hpp"
#include "scheduler/run/match_queue.hpp"
#include "scheduler/run/plan.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace muster::engine {

// The objects to which a plan may refer.
struct Scope {
  Rank rank;
  SessionId session;
  const SessionBuffers& buffers;
  std::span<const scheduler::Group> groups;  // index = GroupId
  const GroupTable& table;
  const World& world;
};

// kUnsupported if the group has members on other nodes.
Status check_on_node(const World& world, const scheduler::Group& group);
// kUnsupported if the group has members on other nodes, and the job has no network.
Status check_reach(const World& world, const scheduler::Group& group);

// The group of a public handle. MUSTER_GROUP_SELF is the rank's own single group.
Result<GroupId> find_group(const Scope& scope, std::uint64_t handle);

// The lists that follow a PlanCollective, copied out of the message.
struct CollectiveLists {
  std::vector<std::uint64_t> source_counts, source_offsets, target_counts, target_offsets;
  std::vector<std::uint32_t> piece_counts;
  std::vector<muster_piece> pieces;
  std::vector<muster_face> sends, receives;
};
// The lists behind `message`; `tail` is all that follows it. Errors: kProtocol.
Result<CollectiveLists> lists_in(const shm::PlanCollective& message, std::span<const std::byte> tail);

// Errors: kBadArgument naming operand or field, value and bound; kStale for a handle that names nothing;
// kUnsupported.
Result<std::unique_ptr<scheduler::Plan>> resolve_kernel(const Scope& scope, const muster_kernel& kernel);
Result<std::unique_ptr<scheduler::Plan>> resolve_collective(const Scope& scope,
                                                            const shm::PlanCollective& message,
                                                            const CollectiveLists& lists);

// The view's address, if all of it lies inside its buffer. `name` is for the message.
Result<kernels::Tensor> resolve_tensor(const SessionBuffers& buffers, const muster_tensor& tensor,
                                       const char* name);

}  // namespace muster::engine
