#include "api/client/halo/halos.hpp"

#include "api/client/error.hpp"
#include "api/client/set/agreement.hpp"

#include <algorithm>
#include <utility>

using muster::Code;
using muster::fail;
using muster::failure;
using muster::Result;
using muster::Status;
using muster::client::guarded;
using muster::client::HaloPlace;
using muster::client::status_of;

namespace {

constexpr muster_lane kLanes[] = {MUSTER_LANE_HALO};

}  // namespace

muster_halos::muster_halos(muster_session* session, const muster::client::HaloGroup& group, std::string name)
    : session_(session), group_(group), name_(std::move(name)), lanes_(session, kLanes) {}

Result<muster_halo> muster_halos::add(const muster_halo_options& options) {
  if (ready_)
    return fail(Code::kState, "halo \"{}\" comes after the set's first start; make all halos before it",
                options.name);
  if (places_.size() == kHalosMax) return fail(Code::kNoResource, "a set has at most {} halos", kHalosMax);
  if (std::ranges::any_of(places_, [&](const auto& place) { return place->name() == options.name; }))
    return fail(Code::kBadArgument, "there is a halo \"{}\" already", options.name);
  MUSTER_ASSIGN_OR_RETURN(std::unique_ptr<HaloPlace> place, HaloPlace::make(session_, group_, options));
  places_.push_back(std::move(place));
  return static_cast<muster_halo>(places_.size() - 1);
}

muster_halos_info muster_halos::info() const {
  muster_halos_info info = MUSTER_HALOS_INFO_INIT;
  info.halos = static_cast<std::uint32_t>(places_.size());
  for (const auto& place : places_) place->add_to(info);
  return info;
}

// ---- the first start ---------------------------------------------------------------------------

Status muster_halos::prepare() {
  MUSTER_RETURN_IF_ERROR(lanes_.open(name_));
  for (const auto& place : places_) MUSTER_RETURN_IF_ERROR(place->prepare());
  meetings_.add(MUSTER_LANE_HALO, group_.group);
  return {};
}

Status muster_halos::make_ready() {
  if (ready_) return {};
  // The other ranks learn of any refusal here, also of memory.
  std::string facts = fmt::format("set \"{}\" has {} halos\n", name_, places_.size());
  const Status own = status_of(guarded([&]() -> Status {
    for (const auto& place : places_) facts += place->description();
    return prepare();
  }));
  Status agreed = muster::client::agree(session_, group_.group, "halos", own, facts);
  ready_ = agreed.ok();
  if (!ready_) (void)withdraw();
  return agreed;
}

Status muster_halos::withdraw() {
  ready_ = false;
  MUSTER_RETURN_IF_ERROR(lanes_.close());
  meetings_.clear();
  for (const auto& place : places_) MUSTER_RETURN_IF_ERROR(place->withdraw());
  return {};
}

// ---- starts ------------------------------------------------------------------------------------

Result<muster_point> muster_halos::started(Result<muster_point> point) {
  if (!point && !muster::is_session_end(point.error().code()) && !std::exchange(broken_, true))
    meetings_.abort(session_, point.error());
  return point;
}

Result<muster_point> muster_halos::forward(std::size_t halo, muster_point after) {
  MUSTER_RETURN_IF_ERROR(make_ready());
  return started(places_[halo]->forward(lanes_, after));
}

Result<muster_point> muster_halos::backward(std::size_t halo, muster_point after) {
  if (!places_[halo]->has_backward())
    return fail(Code::kState, "halo \"{}\" was made for forward only (MUSTER_HALO_FORWARD_ONLY)",
                places_[halo]->name());
  MUSTER_RETURN_IF_ERROR(make_ready());
  return started(places_[halo]->backward(lanes_, after));
}

Status muster_halos::abandon() {
  if (!ready_) return {};
  Status reset = lanes_.reset();
  if (!reset.ok()) return reset;
  broken_ = false;
  return meetings_.meet(lanes_);
}

Status muster_halos::release() {
  MUSTER_RETURN_IF_ERROR(lanes_.drain());
  return withdraw();
}
