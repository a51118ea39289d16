// Groups and meshes that a client makes: what a job does without a rank that it has lost.
#include "api/base/fault_point.hpp"
#include "api/client/session.hpp"
#include "api/shm/message.hpp"

#include <algorithm>
#include <chrono>
#include <thread>

using muster::Code;
using muster::fail;
using muster::failure;
using muster::Result;
using muster::Status;
using muster::client::with_session;
namespace shm = muster::shm;

Result<muster_group> muster_session::make_group(std::span<const std::int32_t> ranks, const char* name) {
  shm::GroupMake request;
  request.ranks = static_cast<std::uint32_t>(ranks.size());
  if (ranks.size_bytes() > shm::kMessageBytesMax - sizeof request)
    return fail(Code::kBadArgument, "{} ranks are more than a message holds: {}", ranks.size(),
                (shm::kMessageBytesMax - sizeof request) / sizeof(std::int32_t));
  if (name != nullptr) MUSTER_RETURN_IF_ERROR(shm::set_text(request.name, name, "a group's name"));
  MUSTER_ASSIGN_OR_RETURN(const auto grant,
                          ask<shm::HandleMessage>(request, shm::MessageKind::kGroupMake,
                                                  shm::MessageKind::kGroupGrant, std::as_bytes(ranks)));
  return grant.handle;
}

// The daemon lets nobody wait in it, so this asks again and again: often at first, since survivors of one
// failure come close together.
Result<muster_group> muster_session::shrink_group(muster_group group, muster::Nanos timeout) {
  constexpr muster::Nanos kPauseMin = std::chrono::microseconds(50);
  constexpr muster::Nanos kPauseMax = std::chrono::milliseconds(5);
  const muster::Instant deadline = muster::later(clock_.now(), timeout);
  shm::GroupShrink request;
  request.group = group;
  for (muster::Nanos pause = kPauseMin;; pause = std::min(2 * pause, kPauseMax)) {
    request.gives_up = clock_.now() >= deadline ? 1 : 0;
    const auto grant =
        ask<shm::HandleMessage>(request, shm::MessageKind::kGroupShrink, shm::MessageKind::kGroupGrant);
    if (grant) return grant->handle;
    if (grant.error().code() != Code::kBusy) {
      note_failure(grant.error());
      return fail(grant.error());
    }
    std::this_thread::sleep_for(pause);
  }
}

// Nobody but this session knows of the plans behind its one-shot calls, so it takes them away itself.
Status muster_session::forget_cached(muster_group group) {
  for (auto cached = cache_.begin(); cached != cache_.end();) {
    const PlanRecord* record = find(cached->plan);
    if (record == nullptr || record->told == nullptr || record->told->message.group != group) {
      ++cached;
      continue;
    }
    MUSTER_RETURN_IF_ERROR(destroy(cached->plan));
    cached = cache_.erase(cached);
  }
  return {};
}

Status muster_session::leave_group(muster_group group) {
  MUSTER_RETURN_IF_ERROR(forget_cached(group));
  if (direct_ != nullptr) direct_->settle(group, muster::Nanos(welcome().deadline_ns));
  return {};
}

void muster_session::forget_group(muster_group group) {
  groups_.erase(group);
  comparison_.forget(group);
}

Status muster_session::free_group(muster_group group) {
  if (group == MUSTER_GROUP_SELF) return {};
  MUSTER_RETURN_IF_ERROR(leave_group(group));
  shm::HandleMessage request;
  request.handle = group;
  const auto done = ask<shm::Plain>(request, shm::MessageKind::kGroupFree, shm::MessageKind::kDone);
  if (!done) return done.error();
  forget_group(group);
  return {};
}

Status muster_session::abort_group(muster_group group) {
  shm::HandleMessage request;
  request.handle = group;
  MUSTER_FAULT_POINT("abort.asking");
  const auto answer = ask<shm::Plain>(request, shm::MessageKind::kGroupAbort, shm::MessageKind::kDone);
  MUSTER_FAULT_POINT("abort.asked");
  return answer ? Status() : answer.error();
}

Result<muster_mesh> muster_session::make_mesh(muster_group group, const char* text) {
  shm::MeshMake request;
  request.group = group;
  MUSTER_RETURN_IF_ERROR(shm::set_text(request.mesh, text, "a mesh"));
  MUSTER_ASSIGN_OR_RETURN(const auto grant, ask<shm::HandleMessage>(request, shm::MessageKind::kMeshMake,
                                                                    shm::MessageKind::kMeshGrant));
  meshes_.insert(grant.handle);
  return grant.handle;
}

Status muster_session::use_mesh(muster_mesh mesh) {
  if (mesh != MUSTER_MESH_JOB && meshes_.count(mesh) == 0)
    return failure(Code::kStale, "no such mesh; make it with muster_mesh_make");
  mesh_ = mesh;
  return {};
}

Status muster_session::free_mesh(muster_mesh mesh) {
  if (meshes_.count(mesh) == 0) return failure(Code::kStale, "no such mesh; make it with muster_mesh_make");
  if (mesh == mesh_)
    return failure(Code::kBusy, "the mesh is in use; choose another first (muster_mesh_use)");
  std::set<muster_group> groups;
  for (const auto& [name, answer] : dims_)
    if (name.first == mesh && answer.group != MUSTER_GROUP_SELF) groups.insert(answer.group);
  for (const muster_group group : groups) MUSTER_RETURN_IF_ERROR(leave_group(group));
  shm::HandleMessage request;
  request.handle = mesh;
  const auto done = ask<shm::Plain>(request, shm::MessageKind::kMeshFree, shm::MessageKind::kDone);
  if (!done) return done.error();
  for (const muster_group group : groups) forget_group(group);
  std::erase_if(dims_, [mesh](const auto& known) { return known.first.first == mesh; });
  meshes_.erase(mesh);
  return {};
}

extern "C" {

muster_status_t muster_group_make(muster_session* session, const int32_t* ranks, size_t count,
                                  const char* name, muster_group* group) {
  return with_session(session, [&]() -> Status {
    if (ranks == nullptr || count == 0 || group == nullptr)
      return failure(Code::kBadArgument, "ranks must hold at least this rank, and group must not be NULL");
    MUSTER_ASSIGN_OR_RETURN(*group, session->make_group(std::span(ranks, count), name));
    return {};
  });
}

muster_status_t muster_group_shrink(muster_session* session, muster_group group, int64_t timeout_ns,
                                    muster_group* survivors) {
  return with_session(session, [&]() -> Status {
    if (survivors == nullptr) return failure(Code::kBadArgument, "survivors must not be NULL");
    if (timeout_ns < 0)
      return failure(Code::kBadArgument, "timeout_ns is {}; 0 is the session's", timeout_ns);
    const muster::Nanos timeout = timeout_ns == 0 ? session->timeout() : muster::Nanos(timeout_ns);
    MUSTER_ASSIGN_OR_RETURN(*survivors, session->shrink_group(group, timeout));
    return {};
  });
}

muster_status_t muster_group_free(muster_session* session, muster_group group) {
  return with_session(session, [&] { return session->free_group(group); });
}

muster_status_t muster_mesh_make(muster_session* session, muster_group group, const char* mesh,
                                 muster_mesh* made) {
  return with_session(session, [&]() -> Status {
    if (mesh == nullptr || made == nullptr)
      return failure(Code::kBadArgument, "mesh and made must not be NULL");
    MUSTER_ASSIGN_OR_RETURN(*made, session->make_mesh(group, mesh));
    return {};
  });
}

muster_status_t muster_mesh_use(muster_session* session, muster_mesh mesh) {
  return with_session(session, [&] { return session->use_mesh(mesh); });
}

muster_status_t muster_mesh_free(muster_session* session, muster_mesh mesh) {
  return with_session(session, [&] { return session->free_mesh(mesh); });
}

}  // extern "C"
