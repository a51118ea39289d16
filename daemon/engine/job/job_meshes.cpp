#include "daemon/engine/job/job_meshes.hpp"

#include "api/base/words.hpp"

#include <algorithm>
#include <iterator>
#include <utility>

namespace muster::engine {
namespace {

Status no_such_mesh(std::uint64_t mesh) {
  return failure(Code::kStale, "{}; make it with muster_mesh_make or muster_mesh_slice",
                 unknown_handle("mesh", mesh, "freed"));
}

}  // namespace

JobMeshes::JobMeshes(mesh::GroupList list, JobGroups& groups, const JobGroups::Parts& parts)
    : list_(std::move(list)), groups_(groups), parts_(parts) {}

void JobMeshes::release(SessionId session) {
  for (auto it = made_.begin(); it != made_.end();) {
    std::set<SessionId>& holders = it->second.sessions;
    const bool last = holders.erase(session) > 0 && holders.empty();
    it = last ? made_.erase(it) : std::next(it);
  }
  added_.erase(session);
}

// ---- made meshes -----------------------------------------------------------------------------------

Result<std::uint64_t> JobMeshes::make(Session& session, std::uint64_t over, std::string_view text) {
  MUSTER_ASSIGN_OR_RETURN(const GroupId group, find_group(session.scope(parts_.graph.groups()), over));
  const scheduler::Group whole = parts_.graph.groups()[group.value];
  const Rank self = session.options().rank;
  const auto at = std::find(whole.ranks.begin(), whole.ranks.end(), self);
  if (at == whole.ranks.end())
    return fail(Code::kBadArgument, "rank {} is not a member of group {}", self.value, whole.name);
  MUSTER_ASSIGN_OR_RETURN(mesh::GroupList list,
                          group_list(text, static_cast<std::uint32_t>(whole.ranks.size()), parts_.spec));
  // MUSTER_GROUP_SELF is one handle for all ranks, so each rank needs its own key.
  const std::uint64_t key = over == MUSTER_GROUP_SELF ? MUSTER_GROUP_SELF - 1 - self.value : over;
  const std::string degrees = list.mesh().degrees().canonical();
  const std::lock_guard lock(parts_.lock);
  const SessionId asker = session.options().id;
  Made* mesh = find_over(key, degrees);
  if (mesh != nullptr && mesh->sessions.count(asker) > 0) return mesh->handle;
  const auto in_mesh = Rank(static_cast<std::uint32_t>(at - whole.ranks.begin()));
  MUSTER_RETURN_IF_ERROR(
      groups_.table().may_hold(self, asker, static_cast<std::uint32_t>(list.count_of(in_mesh))));
  if (mesh == nullptr) {
    const std::vector<Rank> ranks(whole.ranks.begin(), whole.ranks.end());
    MUSTER_ASSIGN_OR_RETURN(mesh, enter({0, key, degrees, std::move(list), ranks, {}, {}}, whole.key));
  }
  mesh->sessions.insert(asker);
  for (const GroupId each : mesh->groups) groups_.table().hold(each, {asker, mesh->handle});
  parts_.faults.refresh_absences();
  return mesh->handle;
}

JobMeshes::Made* JobMeshes::find_over(std::uint64_t group, std::string_view degrees) {
  const auto known = std::find_if(made_.begin(), made_.end(), [&](const auto& entry) {
    return entry.second.over == group && entry.second.degrees == degrees;
  });
  return known == made_.end() ? nullptr : &known->second;
}

// Enters all groups of the mesh, or none. `key`: of the group that it is made over.
Result<JobMeshes::Made*> JobMeshes::enter(Made mesh, std::uint64_t key) {
  mesh.handle = ++handles_;
  for (std::uint32_t g = 0; g < mesh.list.size(); ++g) {
    const mesh::GroupList::Group wanted = mesh.list.group(GroupId(g));
    std::vector<Rank> members;
    for (const Rank rank : wanted.ranks) members.push_back(mesh.ranks[rank.value]);
    const auto group = groups_.enter(wanted.name, members, GroupTable::Found::kOtherwise,
                                     fmt::format("{} of mesh {} over {}", g, mesh.degrees, key));
    if (!group) {
      SessionBuffers::Gone none;  // new groups have no memory
      for (const GroupId each : mesh.groups) groups_.retire(each, none);
      return fail(group.error());
    }
    mesh.groups.push_back(*group);
  }
  return &made_.emplace(mesh.handle, std::move(mesh)).first->second;
}

Status JobMeshes::free(Session& session, std::uint64_t handle) {
  SessionBuffers::Gone gone;  // outlives the lock
  const SessionId owner = session.options().id;
  const std::lock_guard lock(parts_.lock);
  for (auto& [of, added] : added_[owner])
    if (added.slices.erase(handle) > 0) return {};
  const auto known = made_.find(handle);
  if (known == made_.end() || known->second.sessions.count(owner) == 0) return no_such_mesh(handle);
  parts_.slots.drain_all(session.options().rank);
  const std::vector<GroupId> held = groups_.table().held_by({owner, handle});
  std::size_t uses = 0;
  for (const GroupId group : held)
    if (groups_.table().ways_held(group, owner) == 1) uses += session.uses(group);
  if (uses > 0)
    return failure(
        Code::kBusy,
        "{} plans and shared buffers of this session use groups of the mesh {}; destroy them first", uses,
        known->second.degrees);
  for (const GroupId group : held) groups_.drop(group, {owner, handle}, gone);
  added_[owner].erase(handle);
  known->second.sessions.erase(owner);
  if (known->second.sessions.empty()) made_.erase(known);
  return {};
}

// ---- additions of sessions to a mesh ---------------------------------------------------------------

Result<JobMeshes::Seen> JobMeshes::see(const Session& session, std::uint64_t handle) {
  const Rank self = session.options().rank;
  Seen seen{list_, nullptr, nullptr, std::nullopt, self, handle};
  const auto mine = added_.find(session.options().id);
  if (mine != added_.end()) {
    for (auto& [of, added] : mine->second) {
      const auto slice = added.slices.find(handle);
      if (of != handle && slice == added.slices.end()) continue;
      seen.added = &added;
      seen.handle = of;
      if (slice != added.slices.end()) seen.slice = slice->second;
    }
  }
  if (seen.handle == MUSTER_MESH_JOB) return seen;
  const auto known = made_.find(seen.handle);
  if (known == made_.end() || known->second.sessions.count(session.options().id) == 0)
    return fail(no_such_mesh(seen.handle));
  Made& made = known->second;
  const auto at = std::find(made.ranks.begin(), made.ranks.end(), self);
  return Seen{
      made.list,  &made, seen.added, seen.slice, Rank(static_cast<std::uint32_t>(at - made.ranks.begin())),
      seen.handle};
}

JobMeshes::Added& JobMeshes::added_to(const Session& session, const Seen& seen) {
  auto& mine = added_[session.options().id];
  return mine.try_emplace(seen.handle, Added{seen.mesh(), {}, {}}).first->second;
}

std::optional<GroupId> JobMeshes::Seen::listed(std::span<const Rank> in_mesh) const {
  for (std::uint32_t i = 0; i < list.mesh().dim_count(); ++i) {
    const auto group = list.group_of(rank, mesh::Mesh::DimId(i));
    if (!group) continue;
    const std::span<const Rank> ranks = list.group(*group).ranks;
    if (std::equal(ranks.begin(), ranks.end(), in_mesh.begin(), in_mesh.end())) return in_job(*group);
  }
  return std::nullopt;
}

// A slice has these dims; of a whole mesh nothing is checked here.
Status JobMeshes::Seen::check_slice(std::span<const std::string> dims) const {
  if (slice)
    for (const std::string& dim : dims)
      if (const auto known = find(dim); !known) return known.error();
  return {};
}

// The name is tried on a copy, which replaces the session's mesh once the group is there.
Result<shm::MeshAnswer> JobMeshes::flatten(Session& session, std::uint64_t handle, std::string_view name,
                                           std::span<const std::string> dims) {
  MUSTER_ASSIGN_OR_RETURN(Seen seen, see(session, handle));
  MUSTER_RETURN_IF_ERROR(seen.check_slice(dims));
  mesh::Mesh wider = seen.mesh();
  MUSTER_ASSIGN_OR_RETURN(const mesh::Mesh::DimId id, wider.flatten(name, dims));
  if (id.value < seen.mesh().dim_count()) return answer(seen, id, name);
  std::vector<Rank> in_mesh;
  std::vector<Rank> in_job;
  for (std::uint32_t c = 0; c < wider.dim(id).size; ++c) {
    in_mesh.push_back(wider.moved(seen.rank, id, c));
    in_job.push_back(seen.in_job(in_mesh.back()));
  }
  {
    const std::lock_guard lock(parts_.lock);
    seen.added = &added_to(session, seen);
    if (in_job.size() > 1) {
      std::optional<GroupId> group = seen.listed(in_mesh);
      if (!group) {
        MUSTER_ASSIGN_OR_RETURN(group, groups_.hold_by_name(session, name, in_job, seen.handle));
        const Nanos deadline = seen.made != nullptr ? seen.made->deadline : deadline_;
        if (deadline.count() > 0) groups_.table().set_deadline(*group, deadline);
      }
      seen.added->groups.emplace(id.value, *group);
    }
    seen.added->mesh = std::move(wider);
  }
  return answer(seen, id, name);
}

Result<std::uint64_t> JobMeshes::slice(Session& session, std::uint64_t handle,
                                       std::span<const std::string> dims) {
  MUSTER_ASSIGN_OR_RETURN(const Seen seen, see(session, handle));
  MUSTER_RETURN_IF_ERROR(seen.check_slice(dims));
  const std::lock_guard lock(parts_.lock);
  Added& added = added_to(session, seen);
  const std::vector<std::string_view> names(dims.begin(), dims.end());
  MUSTER_ASSIGN_OR_RETURN(const mesh::Mesh::ViewId view, added.mesh.slice(names));
  for (const auto& [known, of] : added.slices)
    if (of == view) return known;
  return added.slices.emplace(++handles_, view).first->first;
}

// Starts that are in a ring by now were begun before, so they get the deadline that they were begun with.
Result<std::vector<std::uint64_t>> JobMeshes::set_deadline(Session& session, std::uint64_t handle,
                                                           Nanos deadline) {
  MUSTER_ASSIGN_OR_RETURN(const Seen seen, see(session, handle));
  if (seen.slice)
    return fail(Code::kBadArgument, "a slice has the groups of its mesh; change the deadline of that");
  const std::lock_guard lock(parts_.lock);
  for (std::uint32_t r = 0; r < seen.list.mesh().world(); ++r)
    if (const Rank rank = seen.in_job(Rank(r));
        parts_.spec.world.is_local(rank) && parts_.slots.of(rank).session)
      parts_.slots.drain_all(rank);
  std::set<GroupId> groups;
  for (std::uint32_t g = 0; g < seen.list.size(); ++g) groups.insert(seen.in_job(GroupId(g)));
  for (const auto& [owner, added] : added_)
    for (const GroupId group : groups_.table().held_by({owner, seen.handle})) groups.insert(group);
  (seen.made != nullptr ? seen.made->deadline : deadline_) = deadline;
  std::vector<std::uint64_t> mine;
  for (const GroupId group : groups) {
    groups_.table().set_deadline(group, deadline);
    const auto& ranks = parts_.graph.groups()[group.value].ranks;
    if (std::find(ranks.begin(), ranks.end(), session.options().rank) != ranks.end())
      mine.push_back(groups_.table().handle_of(group));
  }
  return mine;
}

Result<shm::MeshAnswer> JobMeshes::dim(const Session& session, std::uint64_t handle, std::string_view dim) {
  MUSTER_ASSIGN_OR_RETURN(const Seen seen, see(session, handle));
  MUSTER_ASSIGN_OR_RETURN(const mesh::Mesh::DimId id, seen.find(dim));
  return answer(seen, id, dim);
}

shm::MeshAnswer JobMeshes::answer(const Seen& seen, mesh::Mesh::DimId id, std::string_view dim) {
  shm::MeshAnswer answer;
  answer.coordinate = static_cast<std::int32_t>(seen.mesh().coordinate(seen.rank, id));
  answer.size = static_cast<std::int32_t>(seen.mesh().dim(id).size);
  answer.group = MUSTER_GROUP_SELF;
  if (id.value >= seen.list.mesh().dim_count()) {
    const auto named = seen.added->groups.find(id.value);
    if (named != seen.added->groups.end()) answer.group = groups_.table().handle_of(named->second);
  } else if (const auto group = seen.list.group_of(seen.rank, id)) {
    answer.group = groups_.table().handle_of(seen.in_job(*group));
    groups_.name(seen.in_job(*group), dim);
  }
  return answer;
}

}  // namespace muster::engine
