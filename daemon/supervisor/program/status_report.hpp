// StatusReport: what the supervisor reports about itself and its jobs. It changes nothing.
#pragma once

#include "api/base/clock.hpp"
#include "daemon/control/loop.hpp"
#include "daemon/supervisor/jobs/job_memory.hpp"
#include "daemon/supervisor/jobs/running_jobs.hpp"
#include "daemon/supervisor/listener/connections.hpp"
#include "daemon/supervisor/questions/peer_questions.hpp"
#include "daemon/supervisor/ranks/claims.hpp"
#include "daemon/supervisor/spanning/spanning_jobs.hpp"
#include "daemon/supervisor/takeover/saved_state.hpp"
#include "daemon/supervisor/takeover/takeover.hpp"

#include <chrono>

namespace muster::supervisor {

// Owns    nothing.
// Thread  the supervisor's loop.
// Bound   kReportTime for the engines that are asked. Users who do not govern the daemon see their own jobs.
// Fails   never.
class StatusReport {
 public:
  static constexpr Nanos kReportTime = std::chrono::seconds(1);

  struct Sources {
    const Options& options;
    const JobTable& table;
    RunningJobs& jobs;  // whose engines are asked
    control::NodeCostBook& costs;
    PeerQuestions& questions;  // by which those of other nodes are asked
    const Claims& claims;
    const JobMemory& memory;
    const SavedState& saved;
    const Listeners& listeners;
    const Takeover& takeover;
    const Peers& peers;
    const SpanningJobs& spanning;
    const RendezvousService& rendezvous_service;
  };
  StatusReport(control::Loop& loop, const Clock& clock, Sources sources)
      : loop_(loop), clock_(clock), from_(sources) {}

  control::Json version() const;
  control::Json costs() const;
  control::Json status(const control::Actor& actor) const;
  // Asks each engine for its ranks, and those of the job's other nodes. The answer goes out when the last
  // engine has answered, or after kReportTime without stopped or stuck ones: one job must not hide the
  // others.
  void jobs(const Connections::Caller& caller, const control::Json& body) const;

 private:
  control::Json describe(const Job& job, const control::Actor& actor) const;
  control::Json users(const control::Actor& actor) const;

  control::Loop& loop_;
  const Clock& clock_;
  Sources from_;
};

}  // namespace muster::supervisor
