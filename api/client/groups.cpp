#include "api/client/groups.hpp"

#include "api/base/fault_point.hpp"
#include "api/base/words.hpp"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <thread>

namespace muster::client {

namespace {

Status no_such_mesh(muster_mesh mesh) {
  return failure(Code::kStale, "{}; make it with muster_mesh_make or muster_mesh_slice",
                 unknown_handle("mesh", mesh, "freed"));
}
constexpr std::size_t kDimsMax = 64;

// Asks again while the daemon answers BUSY, the last time at the deadline: the daemon keeps no request
// waiting. Pauses are short at first, because peers mostly call together. ask(last) returns a Result.
template<class Ask>
auto ask_until(const Clock& clock, Nanos timeout, Ask ask) {
  constexpr Nanos kPauseMin = std::chrono::microseconds(50);
  constexpr Nanos kPauseMax = std::chrono::milliseconds(5);
  const Instant deadline = later(clock.now(), timeout);
  for (Nanos pause = kPauseMin;; pause = std::min(2 * pause, kPauseMax)) {
    const bool last = clock.now() >= deadline;
    auto answer = ask(last);
    if (last || answer || answer.error().code() != Code::kBusy) return answer;
    std::this_thread::sleep_for(pause);
  }
}

// BUSY at the deadline becomes NO_RESOURCE: other members did not free their groups in time.
Status out_of_time(const Status& why) {
  return why.code() == Code::kBusy ? failure(Code::kNoResource, "{}", why.message()) : why;
}

Result<std::uint64_t> made(const Result<shm::HandleMessage>& grant) {
  if (grant) return grant->handle;
  return fail(out_of_time(grant.error()));
}

Result<std::vector<shm::DimName>> names_of(std::span<const char* const> dims) {
  if (dims.size() > kDimsMax)
    return fail(Code::kBadArgument, "{} dims are more than any mesh has", dims.size());
  std::vector<shm::DimName> names(dims.size());
  for (std::size_t i = 0; i < dims.size(); ++i) {
    if (dims[i] == nullptr || *dims[i] == '\0')
      return fail(Code::kBadArgument, "the name of dim {} of {} is missing", i, dims.size());
    MUSTER_RETURN_IF_ERROR(shm::set_text(names[i].text, dims[i], "a dim's name"));
  }
  return names;
}

}  // namespace

// ---- groups ------------------------------------------------------------------------------------

Result<Groups::Facts> Groups::ask_facts(muster_group group) {
  shm::HandleMessage request;
  request.handle = group;
  std::vector<std::byte> list;
  auto answer = connection_.ask<shm::GroupAnswer>(request, shm::MessageKind::kGroupQuery,
                                                  shm::MessageKind::kGroupAnswer, {}, &list);
  if (!answer) return fail(answer.error());
  if (answer->ranks < 0 || list.size() != static_cast<std::size_t>(answer->ranks) * sizeof(std::int32_t))
    return fail(Code::kProtocol, "the daemon's list of ranks has a wrong size");
  Facts facts;
  facts.rank = answer->rank;
  const Nanos own(answer->deadline_ns);
  facts.deadline = own.count() > 0 ? own : Nanos(connection_.welcome().deadline_ns);
  facts.spans = answer->spans != 0;
  facts.name.assign(answer->name, strnlen(answer->name, sizeof answer->name));
  facts.ranks.resize(static_cast<std::size_t>(answer->ranks));
  if (!list.empty()) std::memcpy(facts.ranks.data(), list.data(), list.size());
  return facts;
}

Result<const Groups::Facts*> Groups::facts(muster_group group) {
  auto known = facts_.find(group);
  if (known == facts_.end()) {
    MUSTER_ASSIGN_OR_RETURN(Facts facts, ask_facts(group));
    known = facts_.emplace(group, std::move(facts)).first;
  }
  return &known->second;
}

Nanos Groups::deadline(muster_group group) const {
  const auto known = facts_.find(group);
  return known != facts_.end() ? known->second.deadline : Nanos(connection_.welcome().deadline_ns);
}

Result<muster_group> Groups::make(std::span<const std::int32_t> ranks, const char* name) {
  shm::GroupMake request;
  request.ranks = static_cast<std::uint32_t>(ranks.size());
  if (ranks.size_bytes() > shm::kMessageBytesMax - sizeof request)
    return fail(Code::kBadArgument, "{} ranks are more than a message holds: {}", ranks.size(),
                (shm::kMessageBytesMax - sizeof request) / sizeof(std::int32_t));
  if (name != nullptr) MUSTER_RETURN_IF_ERROR(shm::set_text(request.name, name, "a group's name"));
  return made(ask_until(connection_.clock(), connection_.timeout(), [&](bool) {
    return connection_.ask<shm::HandleMessage>(request, shm::MessageKind::kGroupMake,
                                               shm::MessageKind::kGroupGrant, std::as_bytes(ranks));
  }));
}

Result<muster_group> Groups::shrink(muster_group group, Nanos timeout) {
  shm::GroupShrink request;
  request.group = group;
  const auto grant = ask_until(connection_.clock(), timeout, [&](bool last) {
    request.gives_up = last ? 1 : 0;
    return connection_.ask<shm::HandleMessage>(request, shm::MessageKind::kGroupShrink,
                                               shm::MessageKind::kGroupGrant);
  });
  if (!grant) last_failure_.note(grant.error());
  return made(grant);
}

Status Groups::abort(muster_group group, std::string_view reason) {
  const shm::GroupAbort request = shm::abort_of(group, reason);
  MUSTER_FAULT_POINT("abort.asking");
  Status told = connection_.tell(request, shm::MessageKind::kGroupAbort);
  MUSTER_FAULT_POINT("abort.asked");
  return told;
}

Status Groups::free(muster_group group) {
  shm::HandleMessage request;
  request.handle = group;
  MUSTER_RETURN_IF_ERROR(connection_.tell(request, shm::MessageKind::kGroupFree));
  facts_.erase(group);
  return {};
}

// ---- meshes ------------------------------------------------------------------------------------

Result<shm::MeshAnswer> Groups::dim_of(muster_mesh mesh, const char* name) {
  const std::pair<muster_mesh, std::string> key(mesh, name);
  if (const auto known = dims_.find(key); known != dims_.end()) return known->second;
  shm::MeshQuery request;
  request.mesh = mesh;
  if (*name == '\0') return fail(Code::kBadArgument, "a dim's name is empty");
  MUSTER_RETURN_IF_ERROR(shm::set_text(request.dim, name, "a dim's name"));
  auto answer =
      connection_.ask<shm::MeshAnswer>(request, shm::MessageKind::kMeshQuery, shm::MessageKind::kMeshAnswer);
  if (answer) dims_.emplace(key, *answer);
  return answer;
}

Status Groups::flatten(std::span<const char* const> dims, const char* name) {
  shm::MeshNames request;
  request.mesh = used_;
  request.dims = static_cast<std::uint32_t>(dims.size());
  MUSTER_RETURN_IF_ERROR(shm::set_text(request.name, name, "a flattened dim's name"));
  MUSTER_ASSIGN_OR_RETURN(const auto list, names_of(dims));
  const auto answer = ask_until(connection_.clock(), connection_.timeout(), [&](bool) {
    return connection_.ask<shm::MeshAnswer>(request, shm::MessageKind::kMeshFlatten,
                                            shm::MessageKind::kMeshAnswer, std::as_bytes(std::span(list)));
  });
  if (!answer) return out_of_time(answer.error());
  dims_.insert_or_assign({used_, name}, *answer);
  // A group that was made before has the mesh's deadline from now on.
  if (const auto known = facts_.find(answer->group); known != facts_.end()) {
    MUSTER_ASSIGN_OR_RETURN(const Facts facts, ask_facts(answer->group));
    known->second.deadline = facts.deadline;
  }
  return {};
}

Result<muster_mesh> Groups::slice(std::span<const char* const> dims) {
  shm::MeshNames request;
  request.mesh = used_;
  request.dims = static_cast<std::uint32_t>(dims.size());
  MUSTER_ASSIGN_OR_RETURN(const auto list, names_of(dims));
  MUSTER_ASSIGN_OR_RETURN(
      const auto grant,
      connection_.ask<shm::HandleMessage>(request, shm::MessageKind::kMeshSlice, shm::MessageKind::kMeshGrant,
                                          std::as_bytes(std::span(list))));
  const auto of = slices_.find(used_);
  slices_.emplace(grant.handle, of != slices_.end() ? of->second : used_);
  return grant.handle;
}

Result<muster_group> Groups::whole(muster_mesh mesh) {
  if (slices_.count(mesh) > 0)
    return fail(Code::kBadArgument, "a slice has the groups of its mesh; change the deadline of that");
  if (mesh != MUSTER_MESH_JOB && meshes_.count(mesh) == 0) return fail(no_such_mesh(mesh));
  MUSTER_ASSIGN_OR_RETURN(const auto answer, dim_of(mesh, "world"));
  return answer.group;
}

Status Groups::set_deadline(muster_mesh mesh, Nanos deadline) {
  shm::MeshDeadline request;
  request.mesh = mesh;
  request.deadline_ns = deadline.count();
  std::vector<std::byte> list;
  const auto answer = connection_.ask<shm::Plain>(request, shm::MessageKind::kMeshDeadline,
                                                  shm::MessageKind::kMeshGroups, {}, &list);
  if (!answer) return answer.error();
  const Nanos now = deadline.count() > 0 ? deadline : Nanos(connection_.welcome().deadline_ns);
  for (std::size_t i = 0; i < list.size() / sizeof(muster_group); ++i) {
    const auto known = facts_.find(shm::tail_entry<muster_group>(list, i));
    if (known != facts_.end()) known->second.deadline = now;
  }
  return {};
}

Result<muster_mesh> Groups::make_mesh(muster_group group, const char* text) {
  shm::MeshMake request;
  request.group = group;
  MUSTER_RETURN_IF_ERROR(shm::set_text(request.mesh, text, "a mesh"));
  MUSTER_ASSIGN_OR_RETURN(const muster_mesh mesh,
                          made(ask_until(connection_.clock(), connection_.timeout(), [&](bool) {
                            return connection_.ask<shm::HandleMessage>(request, shm::MessageKind::kMeshMake,
                                                                       shm::MessageKind::kMeshGrant);
                          })));
  meshes_.insert(mesh);
  return mesh;
}

Status Groups::use_mesh(muster_mesh mesh) {
  if (mesh != MUSTER_MESH_JOB && meshes_.count(mesh) == 0 && slices_.count(mesh) == 0)
    return no_such_mesh(mesh);
  used_ = mesh;
  return {};
}

// Whether `used` is the mesh, or a slice of it.
bool Groups::is_in(muster_mesh used, muster_mesh mesh) const {
  const auto slice = slices_.find(used);
  return used == mesh || (slice != slices_.end() && slice->second == mesh);
}

Result<std::set<muster_group>> Groups::groups_of_unused(muster_mesh mesh) const {
  const bool is_slice = slices_.count(mesh) > 0;
  if (meshes_.count(mesh) == 0 && !is_slice) return fail(no_such_mesh(mesh));
  if (is_in(used_, mesh))
    return fail(Code::kBusy, "the mesh, or a slice of it, is in use; choose another first (muster_mesh_use)");
  std::set<muster_group> groups;
  for (const auto& [key, answer] : dims_)
    if (!is_slice && is_in(key.first, mesh) && answer.group != MUSTER_GROUP_SELF) groups.insert(answer.group);
  // Another mesh has flattened the same ranks under the same name.
  for (const auto& [key, answer] : dims_)
    if (!is_in(key.first, mesh)) groups.erase(answer.group);
  return groups;
}

Status Groups::free_mesh(muster_mesh mesh, const std::set<muster_group>& groups) {
  shm::HandleMessage request;
  request.handle = mesh;
  MUSTER_RETURN_IF_ERROR(connection_.tell(request, shm::MessageKind::kMeshFree));
  for (const muster_group group : groups) facts_.erase(group);
  std::erase_if(dims_, [&](const auto& known) { return is_in(known.first.first, mesh); });
  std::erase_if(slices_, [mesh](const auto& slice) { return slice.first == mesh || slice.second == mesh; });
  meshes_.erase(mesh);
  return {};
}

}  // namespace muster::client
