// UnitMemory: the places of a set's units while they are whole, and of their whole gradients.
#pragma once

#include "api/base/result.hpp"
#include "api/base/shard/arrange.hpp"
#include "api/base/shard/schedule.hpp"
#include "api/client/set/resources.hpp"
#include "api/client/units/unit.hpp"

#include <muster/units.h>

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace muster::client {

// Owns    a buffer for whole units and slices, and one for whole gradients.
// Thread  the session's.
// Bound   the budget of the set's options; gradients as many as reduce_inputs says.
// Fails   kNoResource for a budget below the least, and as muster_buffer_alloc.
class UnitMemory {
 public:
  UnitMemory(muster_session* session, const muster_units_options& asked);

  // Gives each unit its places, in the buffers and in the schedule.
  Status place(std::vector<shard::UnitSchedule::Facts>& scheduled, std::vector<Unit::Places>& places);
  Status release() { return buffers_.release(); }

  // How many modules ahead units are gathered; at most what was asked for.
  std::uint32_t depth() const { return depth_; }
  std::uint64_t place_bytes() const { return place_bytes_; }  // of whole units and slices
  // The options of the set, but for its name.
  const muster_units_options& asked() const { return asked_; }
  void add_to(muster_units_info& info) const;

 private:
  Status place_whole(std::vector<shard::UnitSchedule::Facts>& scheduled, std::vector<Unit::Places>& places);
  Status place_gradients(std::vector<shard::UnitSchedule::Facts>& scheduled,
                         std::vector<Unit::Places>& places);

  muster_units_options asked_;
  Resources buffers_;
  std::uint64_t least_bytes_ = 0, place_bytes_ = 0, gradient_bytes_ = 0;
  std::uint32_t depth_ = 0;
};

}  // namespace muster::client
