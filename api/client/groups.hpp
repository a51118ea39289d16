// Groups: the groups and meshes of the session, as the engine described them.
#pragma once

#include "api/client/connection.hpp"
#include "api/client/last_failure.hpp"
#include "api/shm/control.hpp"

#include <muster/muster.h>

#include <cstdint>
#include <map>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace muster::client {

// Owns    the answers of the engine, which do not change while a group lives, but for its default deadline;
// and
//         the mesh that is in use.
// Thread  the session's.
// Bound   the engine's limits for groups and meshes.
// Fails   as Connection::ask; STALE for a mesh that it has not made; BUSY for the mesh in use; PROTOCOL.
class Groups {
 public:
  struct Facts {
    std::int32_t rank = 0;  // the caller's index in the group; -1: it is no member
    std::string name;
    Nanos deadline{0};   // default of its operations
    bool spans = false;  // members are on several nodes
    std::vector<std::int32_t> ranks;
  };

  // Both outlive it.
  Groups(Connection& connection, LastFailure& last_failure)
      : connection_(connection), last_failure_(last_failure) {}

  // Asks the engine once per group. The pointer is valid until the group is freed.
  Result<const Facts*> facts(muster_group group);
  // Default of the group's operations: the job's, as long as its facts are not known.
  Nanos deadline(muster_group group) const;

  Result<muster_group> make(std::span<const std::int32_t> ranks, const char* name);
  // The survivors of `group`, once all of them have called or the timeout has passed.
  Result<muster_group> shrink(muster_group group, Nanos timeout);
  // `reason`: the text for the other members; empty: none.
  Status abort(muster_group group, std::string_view reason = {});
  // The caller has destroyed all plans of the group.
  Status free(muster_group group);

  // The group of a dim in the mesh that is in use.
  Result<shm::MeshAnswer> dim(const char* name) { return dim_of(used_, name); }
  // Names the product of these dims of the mesh that is in use.
  Status flatten(std::span<const char* const> dims, const char* name);
  Result<muster_mesh> slice(std::span<const char* const> dims);
  // The group of all ranks of a mesh. STALE: no such mesh. BAD_ARGUMENT: it is a slice.
  Result<muster_group> whole(muster_mesh mesh);
  // The default deadline of the mesh's groups. 0: the job's.
  Status set_deadline(muster_mesh mesh, Nanos deadline);
  Result<muster_mesh> make_mesh(muster_group group, const char* text);
  Status use_mesh(muster_mesh mesh);
  // The groups that go with a mesh. STALE: this session did not make it. BUSY: it, or a slice of it, is in
  // use.
  Result<std::set<muster_group>> groups_of_unused(muster_mesh mesh) const;
  // The caller has destroyed all plans of these groups.
  Status free_mesh(muster_mesh mesh, const std::set<muster_group>& groups);

 private:
  Result<Facts> ask_facts(muster_group group);
  Result<shm::MeshAnswer> dim_of(muster_mesh mesh, const char* name);
  bool is_in(muster_mesh used, muster_mesh mesh) const;

  Connection& connection_;
  LastFailure& last_failure_;
  std::map<muster_group, Facts> facts_;
  std::map<std::pair<muster_mesh, std::string>, shm::MeshAnswer> dims_;
  std::set<muster_mesh> meshes_;               // made by this session
  std::map<muster_mesh, muster_mesh> slices_;  // by slice, the mesh
  muster_mesh used_ = MUSTER_MESH_JOB;
};

// For units, which know no more of a session than the C API. A failure changes nothing.
void abort_group(muster_session* session, muster_group group, std::string_view reason);
// The same: whether members of the group are on several nodes.
Result<bool> spans_nodes(muster_session* session, muster_group group);

}  // namespace muster::client
