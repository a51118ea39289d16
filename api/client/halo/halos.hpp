// muster_halos: the halos of a model, and the lane on which they are exchanged.
#pragma once

#include "api/base/result.hpp"
#include "api/client/halo/place.hpp"
#include "api/client/set/lanes.hpp"
#include "api/client/set/meetings.hpp"

#include <muster/halo.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

// Owns    its halos, and a lane of class HALO.
// Thread  the session's.
// Bound   kHalosMax halos.
// Fails   as halo.h says.
struct muster_halos {
 public:
  static constexpr std::size_t kHalosMax = 1 << 14;

  muster_halos(muster_session* session, const muster::client::HaloGroup& group, std::string name);
  muster_halos(const muster_halos&) = delete;
  muster_halos& operator=(const muster_halos&) = delete;

  muster_session* session() const { return session_; }
  std::size_t size() const { return places_.size(); }
  const muster::client::HaloPlace& place(std::size_t halo) const { return *places_[halo]; }
  muster_halos_info info() const;

  muster::Result<muster_halo> add(const muster_halo_options& options);
  muster::Result<muster_point> forward(std::size_t halo, muster_point after);
  muster::Result<muster_point> backward(std::size_t halo, muster_point after);
  muster::Status abandon();
  // Errors: BUSY.
  muster::Status release();

 private:
  muster::Status make_ready();  // the first time
  muster::Status prepare();
  muster::Status withdraw();  // undoes prepare()
  // A start has come of it, or a failure, of which the other ranks hear.
  muster::Result<muster_point> started(muster::Result<muster_point> point);

  muster_session* session_;
  muster::client::HaloGroup group_;
  std::string name_;
  std::vector<std::unique_ptr<muster::client::HaloPlace>> places_;
  muster::client::SetLanes lanes_;
  muster::client::SetMeetings meetings_;
  bool ready_ = false;
  bool broken_ = false;  // the other ranks know it
};
