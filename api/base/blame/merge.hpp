// Merges the snapshots of a job's nodes into one. Nodes have no common clock, so only ages count: how long
// before its node's answer something happened. A merged snapshot uses the clock of the merging node, and its
// time is that of the first answer. Anything that began later is young, because that node could not report
// it.
//
// An engine knows its own ranks alone. It knows which of them have come to an operation that spans nodes, and
// never which are missing elsewhere. The merged operation lists all its ranks as arrived or missing, each
// with the state that its own node reports. Ranks of a node that has not answered are missing and unknown.
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
  // By the node's clock. Its entries for ranks of other nodes are ignored.
  std::optional<Snapshot> snapshot;
  Instant heard{0};  // when the answer came, by the clock of the merging node
  std::string why;   // there is no snapshot
};

// `parts`: each node of the job once.
Snapshot merge(std::string job, std::span<const NodePart> parts);

}  // namespace muster::blame
