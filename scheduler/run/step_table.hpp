// StepTable: the launched steps that have not ended.
#pragma once

#include "api/base/status.hpp"
#include "scheduler/run/lane_table.hpp"
#include "scheduler/run/match_queue.hpp"
#include "scheduler/run/rank_lanes.hpp"
#include "scheduler/run/request.hpp"

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <vector>

namespace muster::scheduler {

// Owns    its steps. A step of many members borrows a room of its group and lane. Each has one from the
// start,
//         and more once several steps of an EXCHANGE by neighbours are in flight there. Otherwise a launch
//         allocates nothing.
// Thread  one.
// Bound   the steps that were added.
// Fails   never.
class StepTable {
 public:
  struct Member {                  // a part of a step
    std::uint32_t generation = 0;  // RankLanes::generation() at launch
    bool given_up = false;         // it has been informed of a failure
    bool over = false;             // the step has ended
  };
  struct Room {
    std::vector<Step::Part> parts;
    std::vector<Step::After> after;
    std::vector<Member> members;
  };
  struct InFlight {
    Step step;
    Instant since{0};
    Instant deadline{Instant::max()};  // of a collective: the earliest of its members
    Nanos allowed{0};                  // from `since` to the deadline, without what was forgiven
    bool given_up = false;             // its members were informed of a failure before its end
    std::optional<Cause> left;         // a member has given it up before it was outside: why
    std::vector<Member> members;       // by part
    bool used = false;
    Room own{};  // kept here while the step has borrowed another
  };

  // `waits`: the most steps that a member of one is launched behind.
  StepTable(std::size_t groups, std::size_t waits) : waits_(waits), rooms_(groups) {}
  // Makes room for so many more steps in flight.
  void add(std::uint32_t steps);
  // Makes room for the collectives of a group on a lane. `members`: those on this node.
  void add(GroupId group, LaneId lane, std::size_t members);
  // The group is gone.
  void remove(GroupId group) { rooms_[group.value].clear(); }

  // An entry with room for a step of so many members, without parts and members. Its index is *index.
  InFlight& take(std::size_t members, LaneId lane, const Plan& plan, std::uint32_t* index);
  InFlight& at(std::uint32_t index);
  // Call this before the start becomes the step's next part. It notes the steps in flight that the start
  // waits for.
  void add_waits(Step& step, const RankLanes& rank, const LaneQueue::Start& start);
  void give_back(std::uint32_t index);

  std::uint32_t in_flight() const { return in_flight_; }
  // Steps launched by that moment get so much more time.
  void forgive(Instant moment, Nanos lateness);
  // Steps whose deadline has passed and that were not given up.
  std::vector<std::uint32_t> overdue(Instant now) const;
  // The steps in flight that were launched behind that one, or on a lane after it, and were not given up.
  std::vector<std::uint32_t> behind(std::uint32_t index) const;
  // The collective in flight that the rank started last on the lane.
  std::optional<std::uint32_t> latest(Rank rank, std::uint32_t lane) const;
  // The members of steps in flight that are this start of a client of the rank.
  struct Start {
    Rank rank;
    std::uint32_t lane = 0;
    std::uint64_t value = 0;
    std::uint32_t generation = 0;
  };
  std::vector<Member*> of(const Start& start);
  // A collective in flight.
  struct Running {
    const Step* step = nullptr;
    Instant since{0};
  };
  std::vector<Running> running() const;

 private:
  static constexpr std::size_t kNarrow = 2;  // every step has room of its own for this many members
  std::vector<Room>& rooms_of(LaneId lane, const Plan& plan);
  static bool shares_lane(const InFlight& one, const InFlight& other);
  std::uint32_t size() const { return static_cast<std::uint32_t>(steps_.size()); }

  std::size_t waits_;
  std::deque<InFlight> steps_;
  std::vector<std::uint32_t> free_;
  std::vector<std::vector<std::vector<Room>>> rooms_;  // by group, by LaneId: those that no step has
  std::uint32_t in_flight_ = 0;
  std::uint64_t launched_ = 0;
};

// The place by names that all nodes of its group have in common.
transport::PlaceKey key_of(const Place& place, std::span<const Group> groups, const LaneTable& lanes);

// Why a launched step failed, with a text that names it. A failure of the group, or kInternal, keeps its
// code; any other becomes kDevice.
Cause cause_of(const Step& step, std::span<const Group> groups, const LaneTable& lanes, const Status& why);

// Another node's cause, as this node knows it. The other node may report a rank of this node as lost. The
// rank lives, since this engine would know otherwise. So the connection between the two nodes is lost, and
// the rank is not to blame.
Cause as_known_here(Cause cause, const World& world);

}  // namespace muster::scheduler
