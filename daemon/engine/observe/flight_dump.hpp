// The dump of the operations that ranks have run, in the form of PyTorch's flight recorder: JSON of version
// 2.10, one object a rank. Source of the form: pytorch, torch/csrc/distributed/c10d/FlightRecorderDetail.hpp,
// and its analyser, torch/distributed/flight_recorder/components.
#pragma once

#include "daemon/control/job.hpp"
#include "daemon/engine/direct/direct_pages.hpp"
#include "daemon/engine/observe/flight.hpp"
#include "scheduler/run/lane_table.hpp"

#include <span>
#include <vector>

namespace muster::engine {

struct RankFlights {
  std::vector<FlightEntry> started;        // on the engine path
  std::vector<DirectRecords::Flight> run;  // on the direct path
  bool lost = false;                       // older ones have been overwritten
};

// By LocalRank: {"version", "pg_config", "pg_status", "entries", "comm_lib_version", "older_lost"}. The
// analyser matches entries of a process group by number. So each lane of a group is a process group, as are
// its direct path and each direction between two ranks. A process group has one name and one count of
// operations on all nodes. A completed operation is left out if another member's record of it on this node
// was overwritten; "older_lost" says that records of this rank were. Times are the node's monotonic clock.
std::vector<control::Json> flight_dump(std::span<const scheduler::Group> groups,
                                       const scheduler::LaneTable& lanes, const RankTable<RankFlights>& ranks,
                                       Instant now);

}  // namespace muster::engine
