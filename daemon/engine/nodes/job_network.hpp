// The backend of a job that has other nodes.
#pragma once

#include "api/base/clock.hpp"
#include "daemon/control/job.hpp"
#include "transport/collective/backend.hpp"

#include <memory>

namespace muster::engine {

// Opens the network that the job names, and a backend on it; null: the job names none, and loopback does.
// Fails as transport::open_network(). The clock outlives it.
Result<std::unique_ptr<transport::Backend>> open_job_network(const control::JobSpec& spec,
                                                             const Clock& clock);

}  // namespace muster::engine
