// PendingCommands: the requests of an engine to its transport between nodes, until progress() carries them
// out.
#pragma once

#include "transport/collective/communicator.hpp"
#include "transport/collective/job_links.hpp"
#include "transport/span/operation.hpp"

#include <memory>
#include <utility>
#include <vector>

namespace muster::transport::span {

struct PendingCommands {
  std::vector<Launched> launches;
  std::vector<const StepOutcome*> cancelled;
  // With the span of the group, which may be closed when they are carried out. Null: it is not open.
  std::vector<std::pair<EpochEnd, std::shared_ptr<const Span>>> ends;

  void swap(PendingCommands& other) {
    launches.swap(other.launches);
    cancelled.swap(other.cancelled);
    ends.swap(other.ends);
  }
  // Keeps the room of its lists.
  void clear() {
    launches.clear();
    cancelled.clear();
    ends.clear();
  }
  bool empty() const { return launches.empty() && cancelled.empty() && ends.empty(); }
};

}  // namespace muster::transport::span
