// The backend of a job that has other nodes.
#pragma once

#include "api/base/clock.hpp"
#include "api/base/memory_budget.hpp"
#include "daemon/control/job.hpp"
#include "transport/collective/backend.hpp"

#include <memory>

namespace muster::engine {

// Opens the network that the job names, and a backend on it; null: the job names none, and loopback does.
// Fails as transport::open_network(). The clock and the budget outlive it; nullptr: its memory is not
// counted.
Result<std::unique_ptr<transport::Backend>> open_job_network(const control::JobSpec& spec, const Clock& clock,
                                                             MemoryBudget* memory);

}  // namespace muster::engine
