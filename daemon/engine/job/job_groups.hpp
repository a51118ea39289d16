// JobGroups: a job's groups and meshes: those of its start, and those that its clients make.
#pragma once

#include "api/base/mesh/group_list.hpp"
#include "api/shm/control.hpp"
#include "daemon/control/job.hpp"
#include "daemon/engine/direct/direct_pages.hpp"
#include "daemon/engine/job/job_buffers.hpp"
#include "daemon/engine/job/session_mesh.hpp"
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
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace muster::engine {

// Owns    the list of the mesh's groups, the table of all groups, the additions of sessions to meshes, and
//         the state of shrinking.
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
  JobGroups(mesh::GroupList list, GroupTable table, const Parts& parts);
  JobGroups(const JobGroups&) = delete;
  JobGroups& operator=(const JobGroups&) = delete;

  // The groups of the mesh.
  const mesh::GroupList& list() const { return list_; }
  const GroupTable& table() const { return table_; }
  // The groups that clients have made.
  std::vector<scheduler::Group> made() const;

  // Each returns a handle. Call the engine's reclaim() first: it frees the groups that ended sessions held.
  Result<std::uint64_t> make(Session& session, std::string_view name, std::span<const std::int32_t> ranks);
  // kBusy while it waits for other members: the client asks again, the last time with `gives_up`.
  Result<std::uint64_t> shrink(Session& session, std::uint64_t group, bool gives_up);
  Status free(Session& session, std::uint64_t group);
  Result<std::uint64_t> make_mesh(Session& session, std::uint64_t over, std::string_view text);
  Status free_mesh(Session& session, std::uint64_t mesh);
  // Coordinate, size and group handle of a rank along a dim of a mesh or slice. The first dim that is asked
  // for gives a group the name that reports use from then on.
  Result<shm::MeshAnswer> mesh_dim(const Session& session, std::uint64_t mesh, std::string_view dim);
  // For this session, names a product of dims. On failure nothing changes.
  Result<shm::MeshAnswer> flatten(Session& session, std::uint64_t mesh, std::string_view name,
                                  std::span<const std::string> dims);
  Result<std::uint64_t> slice(Session& session, std::uint64_t mesh, std::span<const std::string> dims);
  // The default deadline of all groups of the mesh; 0 is the job's. Returns those of the session's rank.
  Result<std::vector<std::uint64_t>> set_deadline(Session& session, std::uint64_t mesh, Nanos deadline);
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
  // Drops the groups and meshes of an ended session, once none of its work runs any more.
  void release(SessionId session, SessionBuffers::Gone& gone);

 private:
  // A mesh or a slice as one session sees it.
  struct SeenMesh {
    const mesh::GroupList& list;
    MadeMesh* made = nullptr;      // nullptr: the job's
    SessionMesh* added = nullptr;  // nullptr: nothing
    std::optional<mesh::ViewId> slice;
    Rank rank;  // the session's, in the mesh
    std::uint64_t handle = 0;

    const mesh::Mesh& mesh() const { return added != nullptr ? added->mesh : list.mesh(); }
    Result<mesh::DimId> find(std::string_view dim) const {
      return slice ? mesh().find(*slice, dim) : mesh().find(dim);
    }
    Rank in_job(Rank in_mesh) const { return made != nullptr ? made->ranks[in_mesh.value] : in_mesh; }
    GroupId in_job(GroupId in_mesh) const { return made != nullptr ? made->groups[in_mesh.value] : in_mesh; }
    // The mesh's own group of these ranks.
    std::optional<GroupId> listed(std::span<const Rank> in_mesh) const;
  };
  Result<SeenMesh> see(const Session& session, std::uint64_t mesh);
  SessionMesh& added_to(const Session& session, const SeenMesh& seen);
  shm::MeshAnswer answer(const SeenMesh& seen, mesh::DimId id, std::string_view dim);
  std::vector<GroupId> flattened(SessionId session, std::uint64_t mesh) const;
  bool is_flattened(SessionId session, GroupId group, std::uint64_t except) const;
  Result<GroupId> hold_by_name(const Session& session, std::string_view name, std::span<const Rank> ranks);
  Status no_room(const Status& why) const;
  // `identity` tells groups of the same ranks apart, on all nodes alike.
  Result<GroupId> enter(std::string_view name, std::span<const Rank> ranks, GroupTable::Found found,
                        const std::string& identity);
  void retire(GroupId group, SessionBuffers::Gone& gone);
  void name_group(GroupId group, std::string_view name);
  Result<MadeMesh*> enter_mesh(std::uint64_t over, mesh::GroupList list, const scheduler::Group& whole);
  void leave_mesh(MadeMesh& mesh, SessionBuffers::Gone& gone);

  mesh::GroupList list_;
  GroupTable table_;
  JobShrinks shrinks_;
  NodeMessages messages_;
  std::map<SessionId, std::map<std::uint64_t, SessionMesh>> added_;  // by handle of the mesh
  Nanos deadline_{0};  // as MadeMesh::deadline, of the job's mesh
  Parts parts_;
  std::vector<bool> asked_for_;  // by group: a session has asked for it by dim
};

}  // namespace muster::engine
