// UnitLanes: the lanes on which a set of units starts its own work.
#pragma once

#include "api/base/result.hpp"
#include "api/client/units/resources.hpp"

#include <muster/muster.h>

#include <array>
#include <cstdint>
#include <deque>
#include <map>
#include <span>
#include <string>
#include <utility>

namespace muster::client {

// Owns    three lanes, the points of its latest starts, and a barrier for each group that has met.
// Thread  the session's.
// Bound   remembers kRecentMax starts. A call waits while the ring or a lane is full.
// Fails   as muster_plan_start.
class UnitLanes {
 public:
  enum class Lane : std::uint8_t { kGather, kReduce, kAllReduce };

  explicit UnitLanes(muster_session* session) : session_(session), plans_(session) {}

  // Lanes of equal names meet. Errors: those of muster_lane_create.
  Status open(const std::string& name);
  // Errors: BUSY.
  Status close();

  // The starts that follow belong to this step, in traces.
  Status mark_step(std::uint64_t step);
  // `waits`: any number.
  Result<muster_point> start(muster_plan plan, Lane lane, std::span<const muster_point> waits);
  // A point after all of `waits`: NONE if there are none, the one if there is one.
  Result<muster_point> join(Lane lane, std::span<const muster_point> waits);

  // A collective: the point after which all members of the group have reached their `waits`.
  Result<muster_point> barrier(Lane lane, muster_group group, std::span<const muster_point> waits);

  // Waits until all starts have their outcome, whatever it is. Errors: those of the wait itself.
  Status drain();
  // As above, and lets the lanes run again. Errors: those of a session's end, and interrupts; PEER_LOST if
  // that stopped a lane, which runs again all the same.
  Status reset();
  // Meets all members of a group on a lane, once each has got there the cause of the group's failures.
  // Errors: PEER_LOST, and those of reset().
  Status meet(Lane lane, muster_group group);

 private:
  static constexpr std::size_t kRecentMax = 1024;
  Result<muster_point> start_one(muster_plan plan, muster_lane lane, std::span<const muster_point> waits);
  template<class Call>
  Status with_room(Call&& call);
  Status make_room();
  Status wait(muster_point point, Status& outcome);

  muster_session* session_;
  std::array<muster_lane, 3> lanes_{MUSTER_LANE_NONE, MUSTER_LANE_NONE, MUSTER_LANE_NONE};
  std::array<muster_point, 3> latest_{};
  std::deque<muster_point> recent_;
  muster_plan join_ = 0;  // a barrier of this rank alone: it does nothing but wait
  Resources plans_;
  std::map<muster_group, muster_plan> barriers_;
  std::map<std::pair<Lane, muster_group>, muster_point> unfinished_;  // of meet(); NONE: there is none
};

}  // namespace muster::client
