// Heads: the next start of each lane, for reports.
#pragma once

#include "scheduler/run/graph.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace muster::scheduler {

// The next start of a lane, which could not be launched yet.
struct Head {
  Rank rank;
  std::uint32_t lane = 0;
  const Plan* plan = nullptr;
  bool arrived = false;  // a collective that waits for its peers
  // If not arrived: the obstacle of the start, in words. If that is another lane of the rank: which.
  std::string obstacle;
  std::optional<std::uint32_t> blocking_lane;
};
std::vector<Head> heads_of(const Graph& graph);

}  // namespace muster::scheduler
