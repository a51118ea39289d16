// JobMeshes: the meshes of a job: its own, those that clients make over groups, and what sessions add to a
// mesh: flattened names and slices.
#pragma once

#include "api/base/mesh/group_list.hpp"
#include "api/shm/control.hpp"
#include "daemon/engine/job/job_groups.hpp"

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace muster::engine {

// Owns    the list of the job's mesh, the made meshes, and the additions of sessions. The groups of a made
//         mesh live in JobGroups; each session that holds the mesh holds all of them.
// Thread  the conductor; calls that change state take the engine lock. release(): under the lock.
// Bound   that of GroupTable: a mesh has a group at least.
// Fails   as muster.h says.
class JobMeshes {
 public:
  JobMeshes(mesh::GroupList list, JobGroups& groups, const JobGroups::Parts& parts);
  JobMeshes(const JobMeshes&) = delete;
  JobMeshes& operator=(const JobMeshes&) = delete;

  // The groups of the job's mesh.
  const mesh::GroupList& list() const { return list_; }

  // Returns a handle. Call the engine's reclaim() first: it frees the groups that ended sessions held.
  Result<std::uint64_t> make(Session& session, std::uint64_t over, std::string_view text);
  Status free(Session& session, std::uint64_t mesh);
  // Coordinate, size and group handle of a rank along a dim of a mesh or slice. The first dim that is asked
  // for gives a group the name that reports use from then on.
  Result<shm::MeshAnswer> dim(const Session& session, std::uint64_t mesh, std::string_view dim);
  // For this session, names a product of dims. On failure nothing changes.
  Result<shm::MeshAnswer> flatten(Session& session, std::uint64_t mesh, std::string_view name,
                                  std::span<const std::string> dims);
  Result<std::uint64_t> slice(Session& session, std::uint64_t mesh, std::span<const std::string> dims);
  // The default deadline of all groups of the mesh; 0 is the job's. Returns those of the session's rank.
  Result<std::vector<std::uint64_t>> set_deadline(Session& session, std::uint64_t mesh, Nanos deadline);

  // Forgets what an ended session held; JobGroups::release() drops its groups.
  void release(SessionId session);

 private:
  struct Made {
    std::uint64_t handle = 0;
    std::uint64_t over = 0;  // handle of the group that it was made over
    std::string degrees;     // canonical
    mesh::GroupList list;
    std::vector<Rank> ranks;       // of the job, by rank of the mesh
    std::vector<GroupId> groups;   // of the job, by group of the list
    std::set<SessionId> sessions;  // sessions that hold it
    Nanos deadline{0};             // default of its groups; 0: the job's
  };
  // The additions of one session to a mesh. The dims of the mesh keep their Mesh::DimId in the copy;
  // flattened ones follow.
  struct Added {
    mesh::Mesh mesh;
    std::map<std::uint32_t, GroupId> groups;             // of flattened dims of size > 1, by Mesh::DimId
    std::map<std::uint64_t, mesh::Mesh::ViewId> slices;  // by handle
  };
  // A mesh or a slice as one session sees it.
  struct Seen {
    const mesh::GroupList& list;
    Made* made = nullptr;    // nullptr: the job's
    Added* added = nullptr;  // nullptr: nothing
    std::optional<mesh::Mesh::ViewId> slice;
    Rank rank;  // the session's, in the mesh
    std::uint64_t handle = 0;

    const mesh::Mesh& mesh() const { return added != nullptr ? added->mesh : list.mesh(); }
    Result<mesh::Mesh::DimId> find(std::string_view dim) const {
      return slice ? mesh().find(*slice, dim) : mesh().find(dim);
    }
    Rank in_job(Rank in_mesh) const { return made != nullptr ? made->ranks[in_mesh.value] : in_mesh; }
    GroupId in_job(GroupId in_mesh) const { return made != nullptr ? made->groups[in_mesh.value] : in_mesh; }
    // The mesh's own group of these ranks.
    std::optional<GroupId> listed(std::span<const Rank> in_mesh) const;
    Status check_slice(std::span<const std::string> dims) const;
  };
  Result<Seen> see(const Session& session, std::uint64_t mesh);
  Added& added_to(const Session& session, const Seen& seen);
  shm::MeshAnswer answer(const Seen& seen, mesh::Mesh::DimId id, std::string_view dim);
  Made* find_over(std::uint64_t group, std::string_view degrees);
  Result<Made*> enter(Made mesh, std::uint64_t key);

  mesh::GroupList list_;
  JobGroups& groups_;
  const JobGroups::Parts parts_;
  std::map<std::uint64_t, Made> made_;                         // by handle
  std::map<SessionId, std::map<std::uint64_t, Added>> added_;  // by handle of the mesh
  Nanos deadline_{0};                                          // as Made::deadline, of the job's mesh
  std::uint64_t handles_ = 0;                                  // of meshes and slices
};

}  // namespace muster::engine
