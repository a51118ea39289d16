#include "api/client/groups.hpp"

#include "api/base/fault_point.hpp"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <thread>

namespace muster::client {

namespace {

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
Result<std::uint64_t> made(const Result<shm::HandleMessage>& grant) {
  if (grant) return grant->handle;
  if (grant.error().code() == Code::kBusy) return fail(Code::kNoResource, "{}", grant.error().message());
  return fail(grant.error());
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

Status Groups::abort(muster_group group) {
  shm::HandleMessage request;
  request.handle = group;
  MUSTER_FAULT_POINT("abort.asking");
  const auto answer =
      connection_.ask<shm::Plain>(request, shm::MessageKind::kGroupAbort, shm::MessageKind::kDone);
  MUSTER_FAULT_POINT("abort.asked");
  return answer ? Status() : answer.error();
}

Status Groups::free(muster_group group) {
  shm::HandleMessage request;
  request.handle = group;
  const auto done =
      connection_.ask<shm::Plain>(request, shm::MessageKind::kGroupFree, shm::MessageKind::kDone);
  if (!done) return done.error();
  facts_.erase(group);
  return {};
}

// ---- meshes ------------------------------------------------------------------------------------

Result<shm::MeshAnswer> Groups::dim(const char* name) {
  const std::pair<muster_mesh, std::string> key(used_, name);
  if (const auto known = dims_.find(key); known != dims_.end()) return known->second;
  shm::MeshQuery request;
  request.mesh = used_;
  if (*name == '\0') return fail(Code::kBadArgument, "a dim's name is empty");
  MUSTER_RETURN_IF_ERROR(shm::set_text(request.dim, name, "a dim's name"));
  auto answer =
      connection_.ask<shm::MeshAnswer>(request, shm::MessageKind::kMeshQuery, shm::MessageKind::kMeshAnswer);
  if (answer) dims_.emplace(key, *answer);
  return answer;
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
  if (mesh != MUSTER_MESH_JOB && meshes_.count(mesh) == 0)
    return failure(Code::kStale, "no such mesh; make it with muster_mesh_make");
  used_ = mesh;
  return {};
}

Result<std::set<muster_group>> Groups::groups_of_unused(muster_mesh mesh) const {
  if (meshes_.count(mesh) == 0) return fail(Code::kStale, "no such mesh; make it with muster_mesh_make");
  if (mesh == used_) return fail(Code::kBusy, "the mesh is in use; choose another first (muster_mesh_use)");
  std::set<muster_group> groups;
  for (const auto& [key, answer] : dims_)
    if (key.first == mesh && answer.group != MUSTER_GROUP_SELF) groups.insert(answer.group);
  return groups;
}

Status Groups::free_mesh(muster_mesh mesh, const std::set<muster_group>& groups) {
  shm::HandleMessage request;
  request.handle = mesh;
  const auto done =
      connection_.ask<shm::Plain>(request, shm::MessageKind::kMeshFree, shm::MessageKind::kDone);
  if (!done) return done.error();
  for (const muster_group group : groups) facts_.erase(group);
  std::erase_if(dims_, [mesh](const auto& known) { return known.first.first == mesh; });
  meshes_.erase(mesh);
  return {};
}

}  // namespace muster::client
