// The transport of a job that has other nodes.
#pragma once

#include "api/base/clock.hpp"
#include "api/base/memory_budget.hpp"
#include "daemon/control/job.hpp"
#include "transport/collective/communicator_factory.hpp"

namespace muster::engine {

// Opens the network that the job names, and the links and communicators on it. Nothing, if the job names
// none. Fails as transport::open_network(). The clock and the budget outlive it; nullptr: its memory is not
// counted.
Result<transport::JobTransport> open_job_network(const control::JobSpec& spec, const Clock& clock,
                                                 MemoryBudget* memory);

}  // namespace muster::engine
