// The diagnosis of a job as JSON, as `muster hang` prints it.
#pragma once

#include "api/base/blame/blame.hpp"
#include "daemon/control/job.hpp"

namespace muster::control {

// daemon/control/README.md, `hang`.
Json report_json(const blame::Snapshot& snapshot, const blame::Report& report);

}  // namespace muster::control
