// Heads: the next start of each lane, for reports.
#pragma once

#include "scheduler/run/graph.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace muster::scheduler {

// The next start of a lane: it could not be launched yet.
struct Head {
  Rank rank;
  std::uint32_t lane = 0;
  const Plan* plan = nullptr;
  bool arrived = false;  // a collective that waits for its peers
  // What else it waits for, in words, and the lane of the rank that stands in the way, if it is one.
  std::string obstacle;
  std::optional<std::uint32_t> blocking_lane;
};
std::vector<Head> heads_of(const Graph& graph);

}  // namespace muster::scheduler
