// Objects of the C API.
#include "api/client/session/session.hpp"

#include <algorithm>
#include <span>

using muster::Code;
using muster::failure;
using muster::Status;

namespace {

Status check_given(const muster_session* session, const void* data, std::uint64_t bytes) {
  if (session == nullptr) return failure(Code::kBadArgument, "session must not be NULL");
  if (data == nullptr && bytes > 0)
    return failure(Code::kBadArgument, "data is NULL but {} bytes are to be given", bytes);
  return session->usable();
}

}  // namespace

extern "C" {

muster_status_t muster_object_broadcast(muster_session* session, muster_group group, int32_t root,
                                        const void* data, uint64_t bytes, const void** result,
                                        uint64_t* result_bytes) {
  return muster::client::guarded([&]() -> Status {
    MUSTER_RETURN_IF_ERROR(muster::client::check_given(
        {{"session", session}, {"result", result}, {"result_bytes", result_bytes}}));
    MUSTER_RETURN_IF_ERROR(session->usable());
    MUSTER_ASSIGN_OR_RETURN(const auto* facts, session->groups().facts(group));
    const std::uint64_t given = facts->rank == root ? bytes : 0;
    MUSTER_RETURN_IF_ERROR(check_given(session, data, given));
    muster::client::Objects& objects = session->objects();
    MUSTER_RETURN_IF_ERROR(
        objects.broadcast(group, root, std::span(static_cast<const std::byte*>(data), given)));
    *result = objects.result().data();
    *result_bytes = objects.result().size();
    return {};
  });
}

muster_status_t muster_object_gather(muster_session* session, muster_group group, int32_t root,
                                     const void* data, uint64_t bytes, const void** result,
                                     uint64_t* offsets) {
  return muster::client::guarded([&]() -> Status {
    MUSTER_RETURN_IF_ERROR(check_given(session, data, bytes));
    MUSTER_ASSIGN_OR_RETURN(const auto* facts, session->groups().facts(group));
    const bool gets = root < 0 || facts->rank == root;
    if (gets && (result == nullptr || offsets == nullptr))
      return failure(Code::kBadArgument, "result and offsets must not be NULL at who gets them");
    muster::client::Objects& objects = session->objects();
    MUSTER_RETURN_IF_ERROR(
        objects.gather(group, root, std::span(static_cast<const std::byte*>(data), bytes)));
    if (result != nullptr) *result = gets ? objects.result().data() : nullptr;
    if (gets) std::copy(objects.offsets().begin(), objects.offsets().end(), offsets);
    return {};
  });
}
}
