// Buffers of the C API.
#include "api/client/session/freeing.hpp"
#include "api/client/session/session.hpp"

using muster::Code;
using muster::failure;
using muster::Status;

extern "C" {

muster_status_t muster_buffer_alloc(muster_session* session, uint64_t bytes, muster_buffer* buffer,
                                    void** address) {
  if (buffer != nullptr) *buffer = 0;
  if (address != nullptr) *address = nullptr;
  return muster::client::guarded([&]() -> Status {
    MUSTER_RETURN_IF_ERROR(muster::client::check_given({{"session", session}, {"buffer", buffer}}));
    MUSTER_RETURN_IF_ERROR(session->usable());
    MUSTER_ASSIGN_OR_RETURN(const auto granted, session->buffers().alloc(bytes));
    *buffer = granted.buffer;
    if (address != nullptr) *address = granted.address;
    return {};
  });
}

muster_status_t muster_buffer_create(muster_session* session, const muster_buffer_options* options,
                                     muster_buffer* buffer, void** address) {
  if (buffer != nullptr) *buffer = 0;
  if (address != nullptr) *address = nullptr;
  return muster::client::guarded([&]() -> Status {
    MUSTER_RETURN_IF_ERROR(
        muster::client::check_given({{"session", session}, {"options", options}, {"buffer", buffer}}));
    MUSTER_RETURN_IF_ERROR(session->usable());
    MUSTER_ASSIGN_OR_RETURN(const auto granted, session->buffers().create(*options));
    *buffer = granted.buffer;
    if (address != nullptr) *address = granted.address;
    return {};
  });
}

muster_status_t muster_buffer_query(muster_session* session, muster_buffer buffer, muster_buffer_info* info) {
  return muster::client::guarded([&]() -> Status {
    MUSTER_RETURN_IF_ERROR(muster::client::check_given({{"session", session}, {"info", info}}));
    if (info->size != sizeof *info)
      return failure(Code::kBadArgument, "info.size is {}; initialise it by MUSTER_BUFFER_INFO_INIT ({})",
                     info->size, sizeof *info);
    MUSTER_RETURN_IF_ERROR(session->usable());
    return session->buffers().query(buffer, info);
  });
}

muster_status_t muster_buffer_free(muster_session* session, muster_buffer buffer) {
  return muster::client::with_session(session, [&] { return muster::client::free_buffer(*session, buffer); });
}
}
