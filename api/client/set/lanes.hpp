// SetLanes: the lanes on which a set of units or of halos starts its work.
#pragma once

#include "api/base/result.hpp"
#include "api/client/set/resources.hpp"

#include <array>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <muster/muster.h>

namespace muster::client {

// Lanes are named by their class: MUSTER_LANE_GATHER is the lane of that class that the set has.
//
// Owns    its lanes, the points of its latest starts, and a barrier for each group that has met.
// Thread  the session's.
// Bound   remembers kRecentMax starts. A call waits while the ring or a lane is full.
// Fails   as muster_plan_start.
class SetLanes {
 public:
  // `classes`: of the lanes, each once.
  SetLanes(muster_session* session, std::span<const muster_lane> classes);

  // Lanes of equal names meet. Errors: those of muster_lane_create.
  Status open(const std::string& name);
  // Errors: BUSY.
  Status close();

  // The starts that follow belong to this step, in traces.
  Status mark_step(std::uint64_t step);
  // `waits`: any number.
  Result<muster_point> start(muster_plan plan, muster_lane lane, std::span<const muster_point> waits);
  // On a lane of the caller's, by its number: kernels that belong to the set.
  Result<muster_point> start_on(muster_plan plan, muster_lane number, std::span<const muster_point> waits);
  // A point on that lane after all of `waits`, and after all that was started on it before.
  Result<muster_point> join_on(muster_lane number, std::span<const muster_point> waits) {
    return start_on(join_, number, waits);
  }
  // A point after all of `waits`: NONE if there are none, the one if there is one.
  Result<muster_point> join(muster_lane lane, std::span<const muster_point> waits);

  // A collective: the point after which all members of the group have reached their `waits`.
  Result<muster_point> barrier(muster_lane lane, muster_group group, std::span<const muster_point> waits);

  // Waits until the latest starts, and the last of each lane, have their outcome, whatever it is. Errors:
  // those of the wait itself.
  Status drain();
  // As above, and lets the lanes run again, also those of start_on(). Errors: those of a session's end, and
  // interrupts; PEER_LOST if that stopped a lane, which runs again all the same.
  Status reset();
  // Meets all members of a group on a lane, once each has got there the cause of the group's failures.
  // Errors: PEER_LOST, and those of reset().
  Status meet(muster_lane lane, muster_group group);

 private:
  static constexpr std::size_t kRecentMax = 1024;
  struct Opened {
    muster_lane lane_class;
    muster_lane number = MUSTER_LANE_NONE;
    muster_point latest = MUSTER_POINT_NONE;
  };
  Opened& of_class(muster_lane lane);
  Result<muster_point> start_after(muster_plan plan, muster_lane number, std::span<const muster_point> waits);
  Result<muster_point> start_one(muster_plan plan, muster_lane number, std::span<const muster_point> waits);
  template<class Call>
  Status with_room(Call&& call);
  Status make_room();
  muster_point take_oldest();  // of the latest starts, of which there is one
  Status wait(muster_point point, Status& outcome);

  muster_session* session_;
  std::vector<Opened> lanes_;
  std::map<muster_lane, muster_point> latest_elsewhere_;  // of start_on()
  std::array<muster_point, kRecentMax> recent_{};         // a ring: the latest starts, from recent_first_ on
  std::size_t recent_first_ = 0, recent_count_ = 0;
  muster_plan join_ = 0;  // a barrier of this rank alone: it does nothing but wait
  Resources plans_;
  std::map<muster_group, muster_plan> barriers_;
  std::map<std::pair<muster_lane, muster_group>, muster_point> unfinished_;  // of meet(); NONE: there is none
};

}  // namespace muster::client
