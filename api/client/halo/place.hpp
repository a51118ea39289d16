// HaloPlace: one halo of a set: a place in a model where ranks exchange what their results read.
#pragma once

#include "api/base/halo/stencil.hpp"
#include "api/client/set/lanes.hpp"
#include "api/client/set/resources.hpp"

#include <muster/halo.h>
#include <muster/muster.h>

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace muster::client {

// Where the ranks of a set are.
struct HaloGroup {
  muster_group group = MUSTER_GROUP_SELF;
  std::int32_t rank = 0;  // this one, in the group
  std::int32_t ranks = 1;
};

// The forward pass is an exchange of `held`, and kernels. The backward pass is the same of the gradient
// stencil, or an exchange the other way: ghosts' gradients go home into an inbox, and kernels of this class
// add them.
//
// Owns    plans of exchanges and of additions, and the inbox. The kernels' plans are the caller's.
// Thread  the session's.
// Bound   680 faces of an exchange.
// Fails   make() and prepare() as halo.h says of muster_halo_create and of the first start.
class HaloPlace {
 public:
  static Result<std::unique_ptr<HaloPlace>> make(muster_session* session, const HaloGroup& group,
                                                 const muster_halo_options& options);
  HaloPlace(const HaloPlace&) = delete;
  HaloPlace& operator=(const HaloPlace&) = delete;

  const std::string& name() const { return name_; }
  std::string description() const;  // what all ranks must have alike
  void add_to(muster_halos_info& info) const;

  // Makes the plans. withdraw() gives them back. Errors of that: BUSY.
  Status prepare();
  Status withdraw();

  bool has_backward() const { return gradients_ != MUSTER_HALO_FORWARD_ONLY; }
  // Each returns the point at which all has been done.
  Result<muster_point> forward(SetLanes& lanes, muster_point after);
  Result<muster_point> backward(SetLanes& lanes, muster_point after);

 private:
  struct Kernels {
    std::vector<muster_plan> interior, boundary;
  };
  // One exchange, and the additions to what came. In check mode ghosts are made NaN before the first one.
  struct Phase {
    muster_plan exchange = 0;
    std::vector<muster_plan> adds, spoils;
  };
  // An array that takes part, and what of it travels.
  struct Array {
    muster_tensor tensor{};
    halo::Halo halo;
    std::vector<std::size_t> phases;
  };

  HaloPlace(muster_session* session, const HaloGroup& group, const muster_halo_options& options);
  Status plan_held(const halo::Stencil& stencil, const muster_tensor& tensor, const char* field,
                   Array& array) const;
  Status prepare_exchanges(const Array& array, std::vector<Phase>& phases);
  Status prepare_return();
  Result<muster_plan> exchange(std::span<const muster_face> sends, std::span<const muster_face> receives);
  Result<muster_point> run(SetLanes& lanes, const std::vector<Phase>& phases, const Kernels& kernels,
                           muster_point after);
  Result<muster_point> run_return(SetLanes& lanes, muster_point after);

  HaloGroup group_;
  std::string name_;
  muster_lane lane_;
  bool spoils_;  // check mode: a kernel that reads ghosts too early, or too late, computes NaN
  halo::Corners corners_;
  muster_halo_gradients gradients_;
  halo::Stencil stencil_;
  Array held_, fetched_;
  muster_tensor held_gradients_;
  Kernels forward_, backward_;
  Resources plans_;
  std::vector<Phase> forward_phases_, backward_phases_;  // in the order in which they run
  std::uint64_t inbox_bytes_ = 0;
  std::uint64_t exchanges_ = 0;  // started
};

}  // namespace muster::client
