// Buffers of the C API.
#include "api/client/session.hpp"

using muster::Code;
using muster::failure;
using muster::Status;

extern "C" {

muster_status_t muster_buffer_alloc(muster_session* session, uint64_t bytes, muster_buffer* buffer,
                                    void** address) {
  if (buffer != nullptr) *buffer = 0;
  if (address != nullptr) *address = nullptr;
  return muster::client::guarded([&]() -> Status {
    if (session == nullptr || buffer == nullptr)
      return failure(Code::kBadArgument, "session and buffer must not be NULL");
    MUSTER_RETURN_IF_ERROR(session->usable());
    MUSTER_ASSIGN_OR_RETURN(const auto grant, session->alloc(bytes));
    *buffer = grant.first;
    if (address != nullptr) *address = grant.second;
    return {};
  });
}

muster_status_t muster_buffer_free(muster_session* session, muster_buffer buffer) {
  return muster::client::guarded([&]() -> Status {
    if (session == nullptr) return failure(Code::kBadArgument, "session must not be NULL");
    MUSTER_RETURN_IF_ERROR(session->usable());
    return session->free(buffer);
  });
}
}
