// Merges the snapshots of a job's nodes into one. Nodes have no common clock, so only ages count: how long
// before its node's answer something happened. A merged snapshot is by the clock of who merges, and of the
// moment when the first answer came: what began later is young, because that node could not tell of it.
//
// An engine knows its own ranks alone. Of an operation that spans nodes it knows which of them have come, and
// never who is missing elsewhere. The merged operation has all who take part: they have come, or are missing,
// each with the state that its own node tells. Ranks of a node that has not answered are missing and unknown.
#pragma once

#include "api/base/blame/snapshot.hpp"

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace muster::blame {

struct NodePart {
  std::string node;
  std::vector<std::uint32_t> ranks;  // of the job, on that node
  // By the node's clock. What it says of ranks of other nodes is not believed.
  std::optional<Snapshot> snapshot;
  Instant heard{0};  // when the answer came, by the clock of who merges
  std::string why;   // there is no snapshot
};

// `parts`: each node of the job once.
Snapshot merge(std::string job, std::span<const NodePart> parts);

}  // namespace muster::blame
