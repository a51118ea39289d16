// The diagnosis of a job as JSON, as `muster hang` prints it.
#pragma once

#include "daemon/control/job.hpp"
#include "scheduler/blame/blame.hpp"

namespace muster::control {

// daemon/control/README.md, `hang`.
Json report_json(const blame::Snapshot& snapshot, const blame::Report& report);

}  // namespace muster::control
