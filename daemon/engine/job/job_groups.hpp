// JobGroups: a job's groups: those of its start, and those that its clients make. A group is made and retired
// here, in all parts of the engine that must know it.
#pragma once

#include "api/base/mesh/group_list.hpp"
#include "api/shm/control.hpp"
#include "daemon/control/job.hpp"
#include "daemon/engine/direct/direct_pages.hpp"
#include "daemon/engine/job/job_buffers.hpp"
#include "daemon/engine/memory/engine_lock.hpp"
#include "daemon/engine/nodes/faults.hpp"
#include "daemon/engine/nodes/job_shrinks.hpp"
#include "daemon/engine/nodes/missing_members.hpp"
#include "daemon/engine/nodes/node_messages.hpp"
#include "daemon/engine/nodes/other_nodes.hpp"
#include "daemon/engine/observe/metrics.hpp"
#include "daemon/engine/session/group_table.hpp"
#include "daemon/engine/session/rank_slots.hpp"
#include "scheduler/run/executor.hpp"
#include "scheduler/run/graph.hpp"
#include "transport/collective/communicator_factory.hpp"

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace muster::engine {

// The groups of a mesh of that text, with the names that the job flattens.
Result<mesh::GroupList> group_list(std::string_view text, std::uint32_t world, const control::JobSpec& spec);

// Owns    the table of all groups, and the state of shrinking.
// Thread  the conductor; calls that change state take the engine lock. left(), release(), lost_elsewhere():
//         under the lock.
// Bound   that of GroupTable.
// Fails   as muster.h says.
class JobGroups {
 public:
  // A job's groups at its start: of its mesh, each rank alone, and empty places for made groups.
  struct Plan {
    mesh::GroupList list;
    GroupTable table;
    std::vector<scheduler::Group> groups;
  };
  // `spans`: groups with members on other nodes can be used.
  static Result<Plan> plan(const control::JobSpec& spec, bool spans);
  // The parts of the engine that must know a group that comes or goes.
  struct Parts {
    const control::JobSpec& spec;
    const Clock& clock;
    EngineLock& lock;
    scheduler::Graph& graph;
    scheduler::Executor& executor;
    RankSlots& slots;
    JobBuffers& buffers;
    Metrics& metrics;
    Faults& faults;
    DirectPages* direct_pages;  // nullptr: there is no direct path
    const transport::Factories& factories;
    const bool spans;  // the job has links to other nodes
    const RankTable<device::Device*>& devices;
    OtherNodes& other_nodes;
    RanksElsewhere& elsewhere;
    MissingMembers& missing;
  };
  JobGroups(GroupTable table, const Parts& parts);
  JobGroups(const JobGroups&) = delete;
  JobGroups& operator=(const JobGroups&) = delete;

  GroupTable& table() { return table_; }
  // The groups that clients have made.
  std::vector<scheduler::Group> made() const;

  // Each returns a handle. Call the engine's reclaim() first: it frees the groups that ended sessions held.
  Result<std::uint64_t> make(Session& session, std::string_view name, std::span<const std::int32_t> ranks);
  // kBusy while it waits for other members: the client asks again, the last time with `gives_up`.
  Result<std::uint64_t> shrink(Session& session, std::uint64_t group, bool gives_up);
  Status free(Session& session, std::uint64_t group);
  // The members' world ranks; fills the answer.
  Result<std::vector<std::int32_t>> group_ranks(const Session& session, std::uint64_t group,
                                                shm::GroupAnswer* answer);

  // Takes the messages of other nodes' engines, answers them, and reports missing members to them. Nodes go
  // on with agreeing on survivors. True: call it again in a few milliseconds.
  bool progress();

  // The rank's session has ended; `next` is the first session that knows nothing of it.
  void left(Rank rank, SessionId session, SessionId next);
  // A member on another node is lost, or that node.
  void lost_elsewhere(GroupId group, SessionId next);
  // Drops the groups of an ended session, once none of its work runs any more.
  void release(SessionId session, SessionBuffers::Gone& gone);

  // ---- for meshes, under the lock --------------------------------------------------------------
  // Enters a group that has no holder yet. `identity` tells groups of the same ranks apart, on all nodes
  // alike.
  Result<GroupId> enter(std::string_view name, std::span<const Rank> ranks, GroupTable::Found found,
                        const std::string& identity);
  // The session holds the group of that name and those ranks, by itself or by a mesh. The group is made if it
  // is not there.
  Result<GroupId> hold_by_name(const Session& session, std::string_view name, std::span<const Rank> ranks,
                               std::optional<std::uint64_t> mesh);
  // The holder lets go of the group, which is retired if it was the last.
  void drop(GroupId group, const Holder& holder, SessionBuffers::Gone& gone);
  // Removes a group without a holder, so no plan and no start of it is left. If its members share memory by
  // name, that memory and the group stay.
  void retire(GroupId group, SessionBuffers::Gone& gone);
  // The first dim by which a session asks for the group names it in reports. Takes the lock itself.
  void name(GroupId group, std::string_view name);

 private:
  Status no_room(const Status& why) const;

  GroupTable table_;
  JobShrinks shrinks_;
  NodeMessages messages_;
  Parts parts_;
};

}  // namespace muster::engine
