// One flight record of a job, merged from those of its nodes. Pure.
//
// Nodes have no common clock, so no time of one is compared with a time of another. Operations are matched by
// process group and number, and ordered so that each rank's come in the order in which it made them.
#pragma once

#include "daemon/cli/merge/node_reports.hpp"

#include <cstddef>
#include <string>
#include <vector>

namespace muster::cli {

struct MergedFlight {
  // {"job", "world", "clocks", "ranks": {"0": dump}, "operations", "unanswered"}. A dump is that of
  // daemon/engine/observe/flight_dump.hpp with its "node", as has each entry. An operation is
  // {"process_group", "description", "number", "name", "members", "records": [{"rank", "node", "record_id",
  // "state"}], "unrecorded": members without a record}. A job of one node has no names of nodes.
  Json json;
  std::size_t ranks = 0;
  std::size_t entries = 0;
};

// The reports of all nodes. One that cannot be read, or contradicts a former one, gets a `why`. A completed
// operation is left out if a member's record of it was overwritten.
MergedFlight merged_flight(const std::string& job, std::vector<NodeReport>& reports);

}  // namespace muster::cli
