// Request: one start of a plan, copied out of a client's command and checked. Step: a launch of them.
#pragma once

#include "api/base/clock.hpp"
#include "api/base/ids.hpp"
#include "api/base/nodes/span.hpp"
#include "api/shm/command.hpp"
#include "scheduler/run/place.hpp"
#include "scheduler/run/plan.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

namespace muster::scheduler {

struct Request {
  Rank rank;
  std::uint32_t lane = 0;
  std::uint64_t value = 0;                              // the point it reaches on its lane's timeline
  Plan* plan = nullptr;                                 // outlives the request: starts_in_flight holds it
  std::array<std::uint64_t, MUSTER_WAITS_MAX> waits{};  // points; 0: none
  Nanos timeout{0};  // once it is next on its lane: the longest time in which nothing moves that it waits for
  LaneId lane_id{};  // set by the graph
  Share::Bases bases{};    // of a collective: where its vectors begin
  std::uint64_t step = 0;  // of the client's units, for traces; 0: none
};

// A launch of one kernel, or of one collective for all its members at once. An EXCHANGE by neighbours takes
// several, each for members that have arrived and those whom they meet (lane_place.hpp).
struct Step {
  struct Part {  // one rank's share, which completes one request
    Rank rank;
    std::uint32_t lane = 0;
    std::uint64_t value = 0;
    Plan* plan = nullptr;
    Instant arrived{0};  // when it was next on its lane, and its points were reached or launched
    LaneId lane_id{};
    Share::Bases bases{};
    Stamp stamp{};       // of a collective
    bool waits = false;  // of an EXCHANGE by neighbours: for others, whom it meets in later steps
  };
  // A launched step behind which a part is launched: the part's stream waits for its end.
  struct After {
    std::uint32_t part = 0;    // of this step
    std::uint32_t step = 0;    // index of the other
    std::uint64_t number = 0;  // of the other
  };
  // Members of a group on another node for which a step waits.
  struct Awaited {
    NodeIndex node;
    std::vector<Rank> ranks;
    bool all_missing = false;  // none of them has come; else at least one has not
  };
  std::vector<Part> parts;    // one for a kernel; the members on this node in group order for a collective
  std::size_t active = 0;     // of an EXCHANGE by neighbours: so many of the first parts (LanePlace::meet)
  transport::MatchKey key{};  // of a collective of a group that spans nodes
  std::uint64_t number = 0;   // 1, 2, … in order of launch
  std::vector<After> after{};

  // Whether the part is launched behind the step of that index and number.
  bool is_behind(std::uint32_t part, std::uint32_t other, std::uint64_t number_of_other) const {
    return std::any_of(after.begin(), after.end(), [=](const After& each) {
      return each.part == part && each.step == other && each.number == number_of_other;
    });
  }
};

}  // namespace muster::scheduler
