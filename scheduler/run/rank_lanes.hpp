// RankLanes: the lanes of one local rank, its client timelines, and what its next starts wait for.
#pragma once

#include "api/shm/command.hpp"
#include "api/shm/completion.hpp"
#include "scheduler/run/lane_queue.hpp"
#include "scheduler/run/lane_table.hpp"

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace muster::scheduler {

// Owns    the rank's lanes: the first ones, which it always has, and those that its client opens. A closed
//         lane keeps its timeline.
// Thread  one.
// Bound   shm::kLanesMax lanes; shm::kClientTimelinesMax client timelines.
// Fails   signal: kBadArgument.
class RankLanes {
 public:
  // `first`: how many lanes it always has, one for each class from 0 on.
  RankLanes(std::uint32_t first, std::uint32_t depth);

  // ---- its client ------------------------------------------------------------------------------
  // A new client: its lanes start empty at value 0, its client timelines at 0. Launched work of former
  // clients still runs.
  void attached();
  void detached();
  bool present() const { return present_; }
  // Number of clients that the rank has had.
  std::uint32_t generation() const { return generation_; }

  // ---- its lanes -------------------------------------------------------------------------------
  // Opens a lane with the lowest number that is free and on whose stream nothing runs. Empty: none is left.
  std::optional<std::uint32_t> open(LaneId id, muster_lane lane_class);
  void close(std::uint32_t lane) { lanes_[lane].open = false; }
  bool is_open(std::uint32_t lane) const { return lane < lanes_.size() && lanes_[lane].open; }
  bool may_close(std::uint32_t lane) const { return lane >= first_ && is_open(lane); }
  // The open lane of that id.
  std::optional<std::uint32_t> find(LaneId id) const;
  LaneId id(std::uint32_t lane) const { return lanes_[lane].id; }
  // Lanes that were ever opened have the numbers below this.
  std::uint32_t lanes() const { return static_cast<std::uint32_t>(lanes_.size()); }
  LaneQueue& lane(std::uint32_t i) { return lanes_[i].queue; }
  const LaneQueue& lane(std::uint32_t i) const { return lanes_[i].queue; }
  // Parts of launched steps on the lane's stream.
  struct Load {
    std::uint32_t running = 0;      // of former clients too
    std::uint32_t given_up = 0;     // of these: the deadline passed while they ran
    std::uint32_t quarantined = 0;  // of these: the present client's
  };
  Load& load(std::uint32_t i) { return lanes_[i].load; }
  const Load& load(std::uint32_t i) const { return lanes_[i].load; }
  // The lanes that may have a next start, a bit each: a turn looks at no others.
  std::uint64_t busy() const { return busy_; }
  void set_busy(std::uint32_t lane, bool is_busy) {
    const std::uint64_t bit = std::uint64_t{1} << lane;
    busy_ = is_busy ? busy_ | bit : busy_ & ~bit;
  }
  // Raises a client timeline. kBadArgument: it would go down, or it does not exist.
  Code signal(std::uint32_t timeline, std::uint64_t value, Instant now);
  // The engine was held up: moves all recorded times up to `moment` later by `lateness`.
  void forgive(Instant moment, Nanos lateness);

  // ---- obstacles of its starts -----------------------------------------------------------------
  enum class Ready : std::uint8_t { kYes, kNo, kFailed };
  // kYes: its points are reached. All lanes of a rank are of one device, so for a start on that device's
  // streams it is enough that they are launched there. kFailed: *failed says why one of them will never be
  // reached.
  Ready readiness(std::uint32_t lane, const LaneQueue::Start& start, const Cause** failed) const;
  struct Obstacle {
    std::string text;
    std::optional<std::uint32_t> lane;  // the other lane that must move first; empty: no other lane
  };
  Obstacle obstacle(std::uint32_t lane, const LaneQueue::Start& start, const LaneTable& names) const;
  // When the lane's next start passes its deadline: its timeout after the last move of what it waits for.
  // Empty if there is no next start, or while a launched step runs before it.
  std::optional<Instant> deadline(std::uint32_t lane) const;

  // Time during which the compute lane had work, ran none of it, and waited for a collective or another lane.
  struct Exposed {
    Nanos all{0};
    Nanos to_halos{0};  // of it: a lane of class HALO was among those waited for
  };
  const Exposed& exposed() const { return exposed_; }
  void note_exposure(Instant now);

 private:
  std::optional<Instant> still_since(std::uint32_t lane, std::uint64_t seen) const;

  struct Lane {
    LaneQueue queue;
    LaneId id;
    muster_lane lane_class = MUSTER_LANE_COMPUTE;
    Load load{};
    bool open = true;
  };
  static_assert(shm::kLanesMax <= 64, "a lane is a bit of busy_ and of still_since()");

  std::uint32_t first_;
  std::uint32_t depth_;
  std::vector<Lane> lanes_;  // by number
  std::uint64_t busy_ = 0;
  std::array<std::uint64_t, shm::kClientTimelinesMax> timelines_{};
  std::array<Instant, shm::kClientTimelinesMax> signalled_{};  // when each was raised
  bool present_ = false;
  std::uint32_t generation_ = 0;
  std::optional<Instant> exposed_since_;  // when the wait was last looked at; empty: there is none
  bool waits_for_halo_ = false;
  Exposed exposed_;
};

}  // namespace muster::scheduler
