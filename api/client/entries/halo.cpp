// Sets of halos of the C API.
#include "api/client/error.hpp"
#include "api/client/halo/halos.hpp"

#include <string>
#include <string_view>

#include <muster/halo.h>

using muster::Code;
using muster::failure;
using muster::Result;
using muster::Status;
using muster::client::check_session;
using muster::client::guarded;
using muster::client::HaloGroup;
using muster::client::status_of;

namespace {

template<class F>
muster_status_t with_halos(muster_halos* halos, F&& body) noexcept {
  return guarded([&]() -> Status {
    if (halos == nullptr) return failure(Code::kBadArgument, "halos must not be NULL");
    MUSTER_RETURN_IF_ERROR(check_session(halos->session()));
    return body();
  });
}

// Runs `body` for a halo of the set.
template<class F>
muster_status_t start(muster_halos* halos, muster_halo halo, muster_point* done, F&& body) noexcept {
  return with_halos(halos, [&]() -> Status {
    MUSTER_RETURN_IF_ERROR(muster::client::check_given({{"done", done}}));
    if (halo >= halos->size())
      return failure(Code::kBadArgument, "there is no halo {}; the set has {}", halo, halos->size());
    MUSTER_ASSIGN_OR_RETURN(*done, body());
    return {};
  });
}

// Names are sites of exchanges, which have 47 bytes at most.
Status check_name(const char* what, const char* name) {
  const std::string_view text = name;
  if (muster::client::is_site(text)) return {};
  return failure(Code::kBadArgument,
                 "{} has a name of {} bytes; 1 to 47 are possible, and no control characters", what,
                 text.size());
}

Status check_list(const char* name, const muster_plan* plans, std::uint32_t count) {
  if (plans != nullptr || count == 0) return {};
  return failure(Code::kBadArgument, "{} is NULL, but it has {} plans", name, count);
}

Status check_options(const muster_halo_options& said) {
  if (said.size != sizeof said)
    return failure(Code::kBadArgument,
                   "muster_halo_options has size {}; initialise it with its _INIT macro ({})", said.size,
                   sizeof said);
  MUSTER_RETURN_IF_ERROR(muster::client::check_given({{"name", said.name}, {"stencil", said.stencil}}));
  MUSTER_RETURN_IF_ERROR(check_name("the halo", said.name));
  if (said.corners != MUSTER_CORNERS_DIRECT && said.corners != MUSTER_CORNERS_BY_DIMS)
    return failure(Code::kBadArgument,
                   "halo \"{}\": corners is {}, which is neither MUSTER_CORNERS_DIRECT nor BY_DIMS",
                   said.name, said.corners);
  if (said.gradients < MUSTER_HALO_FORWARD_ONLY || said.gradients > MUSTER_HALO_FETCH)
    return failure(
        Code::kBadArgument,
        "halo \"{}\": gradients is {}, which is none of MUSTER_HALO_FORWARD_ONLY, RETURN and FETCH",
        said.name, said.gradients);
  const bool has_backward = said.backward.interior_count + said.backward.boundary_count > 0;
  if (said.gradients == MUSTER_HALO_FORWARD_ONLY && (said.held_gradients.buffer != 0 || has_backward))
    return failure(
        Code::kBadArgument,
        "halo \"{}\": held_gradients or backward is given, but gradients is MUSTER_HALO_FORWARD_ONLY",
        said.name);
  MUSTER_RETURN_IF_ERROR(check_list("forward.interior", said.forward.interior, said.forward.interior_count));
  MUSTER_RETURN_IF_ERROR(check_list("forward.boundary", said.forward.boundary, said.forward.boundary_count));
  MUSTER_RETURN_IF_ERROR(
      check_list("backward.interior", said.backward.interior, said.backward.interior_count));
  return check_list("backward.boundary", said.backward.boundary, said.backward.boundary_count);
}

}  // namespace

extern "C" {

muster_status_t muster_halos_create(muster_session* session, const muster_halos_options* options,
                                    muster_halos** halos) {
  if (halos != nullptr) *halos = nullptr;
  return guarded([&]() -> Status {
    MUSTER_RETURN_IF_ERROR(check_session(session));
    MUSTER_RETURN_IF_ERROR(muster::client::check_given({{"options", options}, {"halos", halos}}));
    if (options->size != sizeof *options)
      return failure(Code::kBadArgument,
                     "muster_halos_options has size {}; initialise it with its _INIT macro ({})",
                     options->size, sizeof *options);
    const char* name = options->name == nullptr ? "halos" : options->name;
    MUSTER_RETURN_IF_ERROR(check_name("the set", name));
    muster_group_info info = MUSTER_GROUP_INFO_INIT;
    MUSTER_RETURN_IF_ERROR(status_of(muster_group_query(session, options->group, &info)));
    if (info.rank < 0) return failure(Code::kBadArgument, "this rank is not a member of group {}", info.name);
    *halos = new muster_halos(session, HaloGroup{options->group, info.rank, info.ranks}, name);
    return {};
  });
}

muster_status_t muster_halos_destroy(muster_halos* halos) {
  if (halos == nullptr) return MUSTER_OK;
  return guarded([&]() -> Status {
    // With a session that is over, its memory is gone already.
    if (check_session(halos->session()).ok()) MUSTER_RETURN_IF_ERROR(halos->release());
    delete halos;
    return {};
  });
}

muster_status_t muster_halos_query(muster_halos* halos, muster_halos_info* info) {
  return guarded([&]() -> Status {
    MUSTER_RETURN_IF_ERROR(muster::client::check_given({{"halos", halos}, {"info", info}}));
    if (info->size != sizeof *info)
      return failure(Code::kBadArgument,
                     "muster_halos_info has size {}; initialise it with its _INIT macro ({})", info->size,
                     sizeof *info);
    *info = halos->info();
    return {};
  });
}

muster_status_t muster_halo_create(muster_halos* halos, const muster_halo_options* options,
                                   muster_halo* halo) {
  return with_halos(halos, [&]() -> Status {
    MUSTER_RETURN_IF_ERROR(muster::client::check_given({{"options", options}, {"halo", halo}}));
    MUSTER_RETURN_IF_ERROR(check_options(*options));
    MUSTER_ASSIGN_OR_RETURN(*halo, halos->add(*options));
    return {};
  });
}

muster_status_t muster_halo_forward(muster_halos* halos, muster_halo halo, muster_point after,
                                    muster_point* done) {
  return start(halos, halo, done, [&] { return halos->forward(halo, after); });
}

muster_status_t muster_halo_backward(muster_halos* halos, muster_halo halo, muster_point after,
                                     muster_point* done) {
  return start(halos, halo, done, [&] { return halos->backward(halo, after); });
}

muster_status_t muster_halos_abandon(muster_halos* halos) {
  return with_halos(halos, [&] { return halos->abandon(); });
}
}
