// Checkpoints of the C API.
#include "api/client/checkpoint/checkpoints.hpp"
#include "api/client/error.hpp"
#include "api/client/set/resources.hpp"

#include <span>
#include <utility>

#include <muster/checkpoint.h>

using muster::Code;
using muster::failure;
using muster::Status;
using muster::client::guarded;

namespace {

// Runs `body` if neither the object nor the needed argument is NULL.
template<class F>
muster_status_t with_checkpoints(muster_checkpoints* checkpoints, std::pair<const char*, const void*> needed,
                                 F&& body) noexcept {
  return guarded([&]() -> Status {
    MUSTER_RETURN_IF_ERROR(muster::client::check_given({{"checkpoints", checkpoints}, needed}));
    return body();
  });
}

}  // namespace

extern "C" {

muster_status_t muster_checkpoints_open(muster_session* session, const muster_checkpoints_options* options,
                                        muster_checkpoints** checkpoints) {
  if (checkpoints != nullptr) *checkpoints = nullptr;
  return guarded([&]() -> Status {
    if (options == nullptr || checkpoints == nullptr)
      return muster::client::check_given({{"options", options}, {"checkpoints", checkpoints}});
    MUSTER_ASSIGN_OR_RETURN(auto opened, muster_checkpoints::open(session, *options));
    *checkpoints = new muster_checkpoints(std::move(opened));
    return {};
  });
}

muster_status_t muster_checkpoints_close(muster_checkpoints* checkpoints) {
  delete checkpoints;
  return MUSTER_OK;
}

muster_status_t muster_checkpoint_save(muster_checkpoints* checkpoints,
                                       const muster_checkpoint_save_options* options) {
  return with_checkpoints(checkpoints, {"options", options}, [&]() -> Status {
    MUSTER_RETURN_IF_ERROR(checkpoints->save_async(*options));
    return checkpoints->wait();
  });
}

muster_status_t muster_checkpoint_save_async(muster_checkpoints* checkpoints,
                                             const muster_checkpoint_save_options* options) {
  return with_checkpoints(checkpoints, {"options", options},
                          [&]() -> Status { return checkpoints->save_async(*options); });
}

muster_status_t muster_checkpoint_wait(muster_checkpoints* checkpoints) {
  return with_checkpoints(checkpoints, {"checkpoints", checkpoints},
                          [&]() -> Status { return checkpoints->wait(); });
}

muster_status_t muster_checkpoint_load(muster_checkpoints* checkpoints,
                                       const muster_checkpoint_load_options* options,
                                       muster_checkpoint_info* info) {
  return with_checkpoints(checkpoints, {"options", options},
                          [&]() -> Status { return checkpoints->load(*options, info); });
}

muster_status_t muster_checkpoint_list(muster_checkpoints* checkpoints, muster_checkpoint_info* infos,
                                       size_t capacity, size_t* count) {
  return with_checkpoints(checkpoints, {"count", count}, [&]() -> Status {
    if (infos == nullptr && capacity > 0)
      return failure(Code::kBadArgument, "infos is NULL, but capacity is {}", capacity);
    MUSTER_ASSIGN_OR_RETURN(*count, checkpoints->list(std::span(infos, capacity)));
    return {};
  });
}

muster_status_t muster_checkpoint_query(muster_checkpoints* checkpoints, const char* name,
                                        muster_checkpoint_info* info) {
  return with_checkpoints(checkpoints, {"info", info},
                          [&]() -> Status { return checkpoints->query(name, *info); });
}
}
