// Timelines: the facts about points that the session knows without asking: the number of starts of each lane,
// and the values that its own timelines have reached.
#pragma once

#include "api/base/result.hpp"
#include "api/shm/command.hpp"

#include <muster/muster.h>

#include <array>
#include <cstdint>
#include <optional>

namespace muster::client {

// Owns    which lanes there are, and the latest value of each lane and of each timeline of the session.
// Thread  the session's.
// Bound   shm::kClientTimelinesMax timelines of its own.
// Fails   create(): NO_RESOURCE.
class Timelines {
 public:
  Timelines() {
    for (std::uint32_t lane = 0; lane < shm::kLanesMax; ++lane) latest_[lane] = shm::make_point(lane, 0);
  }

  bool has_lane(muster_lane lane) const { return lane < shm::kLanesMax && (open_ >> lane & 1U) != 0; }
  // A lane that is opened again goes on with its former values.
  void open_lane(muster_lane lane) { open_ |= std::uint64_t{1} << lane; }
  void close_lane(muster_lane lane) { open_ &= ~(std::uint64_t{1} << lane); }

  // The point of the lane's latest start; its value is 0 before the first.
  muster_point latest(muster_lane lane) const { return latest_[lane]; }
  std::uint64_t started(muster_lane lane) const { return shm::point_value(latest_[lane]); }
  // Counts `starts` more and returns the point of the last one.
  muster_point start(muster_lane lane, std::uint64_t starts = 1) { return latest_[lane] += starts; }

  Result<std::uint32_t> create() {
    if (created_ == shm::kClientTimelinesMax)
      return fail(Code::kNoResource, "a session has at most {} timelines of its own",
                  shm::kClientTimelinesMax);
    return shm::kClientTimelineFirst + created_++;
  }
  std::uint32_t created() const { return created_; }
  // A timeline that create() has returned.
  bool is_own(std::uint32_t timeline) const {
    return timeline >= shm::kClientTimelineFirst && timeline < shm::kClientTimelineFirst + created_;
  }
  std::uint64_t raised(std::uint32_t own) const { return raised_[own - shm::kClientTimelineFirst]; }
  void raise(std::uint32_t own, std::uint64_t value) { raised_[own - shm::kClientTimelineFirst] = value; }

  // Whether a start may wait for the point. Checked here: a wait for a point that was never handed out would
  // fail only at its deadline.
  bool may_be_awaited(muster_point point) const {
    const std::uint32_t timeline = shm::point_timeline(point);
    if (point == MUSTER_POINT_NONE) return true;
    if (timeline < shm::kLanesMax) return point <= latest_[timeline];
    return is_own(timeline);
  }

  // The outcome of a point of the session's own timelines; nothing for points that the engine raises.
  // kBadArgument: the session has no such point.
  std::optional<Code> verdict(muster_point point) const {
    const std::uint32_t timeline = shm::point_timeline(point);
    if (point == MUSTER_POINT_NONE) return std::nullopt;
    if (timeline < shm::kLanesMax)
      return point > latest_[timeline] ? std::optional(Code::kBadArgument) : std::nullopt;
    if (!is_own(timeline)) return Code::kBadArgument;
    return raised(timeline) >= shm::point_value(point) ? Code::kOk : Code::kPending;
  }

 private:
  static_assert(shm::kLanesMax <= 64, "a lane is a bit of open_");
  std::uint64_t open_ = (std::uint64_t{1} << MUSTER_LANE_CLASSES) - 1;
  std::array<muster_point, shm::kLanesMax> latest_{};
  std::array<std::uint64_t, shm::kClientTimelinesMax> raised_{};
  std::uint32_t created_ = 0;
};

}  // namespace muster::client
