// What the ranks have run, in the form that PyTorch's flight recorder dumps: JSON of version 2.10, one object
// a rank. Source of the form: pytorch, torch/csrc/distributed/c10d/FlightRecorderDetail.hpp, and what its
// analyser asks of it, torch/distributed/flight_recorder/components.
#pragma once

#include "daemon/control/job.hpp"
#include "daemon/engine/board.hpp"
#include "daemon/engine/flight.hpp"

#include <span>
#include <vector>

namespace muster::engine {

struct RankFlights {
  std::vector<FlightEntry> started;        // on the engine path
  std::vector<DirectRecords::Flight> run;  // directly
  bool lost = false;                       // older ones have been overwritten
};

// By rank: {"version", "pg_config", "pg_status", "entries", "comm_lib_version"}. The analyser matches entries
// of a process group by number, so each lane of a group is one, the direct path of a group is one, and so is
// each direction between two ranks. An operation that another member can no longer show, because its memory
// of it was overwritten, is left out at all. Times are the node's monotonic clock.
std::vector<control::Json> flight_dump(std::span<const scheduler::Group> groups,
                                       std::span<const RankFlights> ranks, Instant now);

}  // namespace muster::engine
