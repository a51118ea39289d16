#include "api/client/session/freeing.hpp"

#include "api/client/session/session.hpp"

namespace muster::client {
namespace {

// Before the group's memory goes, its members must have read the data that this rank has staged for them.
Status leave_group(muster_session& session, muster_group group) {
  MUSTER_RETURN_IF_ERROR(session.plans().forget_cached(group));
  session.runs().drain(group);
  return {};
}

}  // namespace

Status free_buffer(muster_session& session, muster_buffer buffer) {
  if (session.buffers().has(buffer)) MUSTER_RETURN_IF_ERROR(session.plans().forget_cached_over(buffer));
  return session.buffers().free(buffer);
}

Status free_group(muster_session& session, muster_group group) {
  if (group == MUSTER_GROUP_SELF) return {};
  MUSTER_RETURN_IF_ERROR(leave_group(session, group));
  MUSTER_RETURN_IF_ERROR(session.groups().free(group));
  session.comparison().forget(group);
  return {};
}

Status free_mesh(muster_session& session, muster_mesh mesh) {
  MUSTER_ASSIGN_OR_RETURN(const auto groups, session.groups().groups_of_unused(mesh));
  for (const muster_group group : groups) MUSTER_RETURN_IF_ERROR(leave_group(session, group));
  MUSTER_RETURN_IF_ERROR(session.groups().free_mesh(mesh, groups));
  for (const muster_group group : groups) session.comparison().forget(group);
  return {};
}

}  // namespace muster::client
