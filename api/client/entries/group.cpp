// Groups and meshes of the C API.
#include "api/client/session/freeing.hpp"
#include "api/client/session/session.hpp"

#include <algorithm>
#include <cstring>
#include <span>

using muster::Code;
using muster::failure;
using muster::Status;
using muster::client::check_given;
using muster::client::with_session;

extern "C" {

muster_status_t muster_group_make(muster_session* session, const int32_t* ranks, size_t count,
                                  const char* name, muster_group* group) {
  return with_session(session, [&]() -> Status {
    if (count == 0) return failure(Code::kBadArgument, "count is 0; ranks must hold at least this rank");
    MUSTER_RETURN_IF_ERROR(check_given({{"ranks", ranks}, {"group", group}}));
    MUSTER_ASSIGN_OR_RETURN(*group, session->groups().make(std::span(ranks, count), name));
    return {};
  });
}

muster_status_t muster_group_shrink(muster_session* session, muster_group group, int64_t timeout_ns,
                                    muster_group* survivors) {
  return with_session(session, [&]() -> Status {
    if (survivors == nullptr) return failure(Code::kBadArgument, "survivors must not be NULL");
    if (timeout_ns < 0)
      return failure(Code::kBadArgument, "timeout_ns is {}; 0 is the session's", timeout_ns);
    const muster::Nanos timeout =
        timeout_ns == 0 ? session->connection().timeout() : muster::Nanos(timeout_ns);
    MUSTER_ASSIGN_OR_RETURN(*survivors, session->groups().shrink(group, timeout));
    return {};
  });
}

muster_status_t muster_group_free(muster_session* session, muster_group group) {
  return with_session(session, [&] { return muster::client::free_group(*session, group); });
}

muster_status_t muster_group_abort(muster_session* session, muster_group group) {
  return with_session(session, [&] { return session->groups().abort(group); });
}

muster_status_t muster_group_query(muster_session* session, muster_group group, muster_group_info* info) {
  return with_session(session, [&]() -> Status {
    if (info == nullptr || info->size != sizeof(muster_group_info))
      return failure(Code::kBadArgument, "info must be initialised by MUSTER_GROUP_INFO_INIT");
    MUSTER_ASSIGN_OR_RETURN(const auto* facts, session->groups().facts(group));
    info->rank = facts->rank;
    info->ranks = static_cast<int32_t>(facts->ranks.size());
    std::memset(info->name, 0, sizeof info->name);
    facts->name.copy(info->name, sizeof info->name - 1);
    return {};
  });
}

muster_status_t muster_group_ranks(muster_session* session, muster_group group, int32_t* ranks,
                                   size_t capacity, size_t* count) {
  return with_session(session, [&]() -> Status {
    MUSTER_RETURN_IF_ERROR(check_given({{"count", count}}));
    if (ranks == nullptr && capacity > 0)
      return failure(Code::kBadArgument, "ranks is NULL, but capacity is {}", capacity);
    MUSTER_ASSIGN_OR_RETURN(const auto* facts, session->groups().facts(group));
    *count = facts->ranks.size();
    std::copy_n(facts->ranks.begin(), std::min(capacity, facts->ranks.size()), ranks);
    return {};
  });
}

muster_status_t muster_mesh_group(muster_session* session, const char* dim, muster_group* group) {
  return with_session(session, [&]() -> Status {
    if (dim == nullptr || group == nullptr) return check_given({{"dim", dim}, {"group", group}});
    MUSTER_ASSIGN_OR_RETURN(const auto answer, session->groups().dim(dim));
    *group = answer.group;
    return {};
  });
}

muster_status_t muster_mesh_coords(muster_session* session, const char* dim, int32_t* coordinate,
                                   int32_t* size) {
  return with_session(session, [&]() -> Status {
    if (dim == nullptr) return failure(Code::kBadArgument, "dim must not be NULL");
    MUSTER_ASSIGN_OR_RETURN(const auto answer, session->groups().dim(dim));
    if (coordinate != nullptr) *coordinate = answer.coordinate;
    if (size != nullptr) *size = answer.size;
    return {};
  });
}

muster_status_t muster_mesh_make(muster_session* session, muster_group group, const char* mesh,
                                 muster_mesh* made) {
  return with_session(session, [&]() -> Status {
    if (mesh == nullptr || made == nullptr) return check_given({{"mesh", mesh}, {"made", made}});
    MUSTER_ASSIGN_OR_RETURN(*made, session->groups().make_mesh(group, mesh));
    return {};
  });
}

muster_status_t muster_mesh_use(muster_session* session, muster_mesh mesh) {
  return with_session(session, [&] { return session->groups().use_mesh(mesh); });
}

muster_status_t muster_mesh_flatten(muster_session* session, const char* const* dims, size_t count,
                                    const char* name) {
  return with_session(session, [&]() -> Status {
    if (count == 0) return failure(Code::kBadArgument, "count is 0; dims must hold at least one name");
    MUSTER_RETURN_IF_ERROR(check_given({{"dims", dims}, {"name", name}}));
    return session->groups().flatten(std::span(dims, count), name);
  });
}

muster_status_t muster_mesh_slice(muster_session* session, const char* const* dims, size_t count,
                                  muster_mesh* slice) {
  return with_session(session, [&]() -> Status {
    if (count == 0) return failure(Code::kBadArgument, "count is 0; dims must hold at least one name");
    MUSTER_RETURN_IF_ERROR(check_given({{"dims", dims}, {"slice", slice}}));
    MUSTER_ASSIGN_OR_RETURN(*slice, session->groups().slice(std::span(dims, count)));
    return {};
  });
}

muster_status_t muster_mesh_deadline(muster_session* session, muster_mesh mesh, int64_t deadline_ns) {
  return with_session(session, [&]() -> Status {
    if (deadline_ns < 0)
      return failure(Code::kBadArgument, "deadline_ns is {}; 0 is the job's default", deadline_ns);
    return session->set_mesh_deadline(mesh, muster::Nanos(deadline_ns));
  });
}

muster_status_t muster_mesh_free(muster_session* session, muster_mesh mesh) {
  return with_session(session, [&] { return muster::client::free_mesh(*session, mesh); });
}

}  // extern "C"
