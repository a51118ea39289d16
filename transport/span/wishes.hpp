// Wishes: what an engine asks of its backend between nodes, until progress() carries it out.
#pragma once

#include "transport/collective/backend.hpp"
#include "transport/span/operation.hpp"

#include <vector>

namespace muster::transport::span {

struct Wishes {
  std::vector<Launched> launches;
  std::vector<const StepOutcome*> cancelled;
  std::vector<EpochEnd> ends;

  bool empty() const { return launches.empty() && cancelled.empty() && ends.empty(); }
};

}  // namespace muster::transport::span
