// StepTable: the steps that are launched and not over.
#pragma once

#include "api/base/status.hpp"
#include "scheduler/run/match_queue.hpp"
#include "scheduler/run/request.hpp"

#include <cstdint>
#include <span>
#include <vector>

namespace muster::scheduler {

// Owns    its steps. Nothing is allocated by a launch: a step of many members borrows the room of its group
//         and lane, which has one step in flight at most.
// Thread  one.
// Bound   the steps given.
// Fails   never.
class StepTable {
 public:
  struct InFlight {
    Step step;
    Instant since{0};
    std::vector<std::uint32_t> generations;  // of each part's rank at launch (RankLanes::generation)
    bool used = false;
  };

  StepTable(std::uint32_t steps, std::uint32_t lanes, std::span<const Group> groups);
  // Room for the collectives of a group that has come, or none for one that has gone.
  void set_group(GroupId group, std::size_t members);

  // A place for a step of so many members, with neither parts nor generations. Its index is *index.
  InFlight& take(std::size_t members, std::uint32_t lane, const Plan& plan, std::uint32_t* index);
  InFlight& at(std::uint32_t index);
  void give_back(std::uint32_t index);

  std::uint32_t in_flight() const { return in_flight_; }
  // Collectives that are under way.
  struct Running {
    const Step* step = nullptr;
    Instant since{0};
  };
  std::vector<Running> running() const;

 private:
  struct Room {
    std::vector<Step::Part> parts;
    std::vector<std::uint32_t> generations;
  };
  static constexpr std::size_t kNarrow = 2;  // members for which every step has room
  Room* room_of(std::size_t members, std::uint32_t lane, const Plan& plan);
  static void exchange(InFlight& step, Room* room);

  std::uint32_t lanes_;
  std::vector<InFlight> steps_;
  std::vector<std::uint32_t> free_;
  std::vector<Room> rooms_;  // group · lanes + lane
  std::uint32_t in_flight_ = 0;
};

// Why a launched step failed, in words that name it. A client hears a failure of its group as it is, and any
// other as one of the device, or as our defect.
Cause cause_of(const Step& step, std::span<const Group> groups, const Status& why);

}  // namespace muster::scheduler
