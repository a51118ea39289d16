// MakingWorld: the surroundings of a JobMaking on a node: its peers, its engine of the job, its clock.
#pragma once

#include "daemon/supervisor/jobs/running_jobs.hpp"
#include "daemon/supervisor/peers/peers.hpp"
#include "daemon/supervisor/spanning/job_making.hpp"

#include <functional>
#include <span>
#include <string>

namespace muster::supervisor {

// Owns    nothing.
// Thread  the supervisor's loop.
// Bound   as the engine's channel and the connections with peers.
// Fails   connect: by its answer.
class MakingWorld final : public JobMaking::World {
 public:
  // `spec` outlives this object.
  MakingWorld(control::Loop& loop, RunningJobs& jobs, Peers& peers, const control::JobSpec& spec)
      : loop_(loop), jobs_(jobs), peers_(peers), spec_(spec) {}

  void send(const std::string& node, const control::Json& message) override;
  void connect(std::span<const control::EngineCall> calls,
               std::function<void(const Status&)> answered) override;
  std::string interfaces_text() const override;
  control::Loop::Watch after(Nanos delay, std::function<void()> callback) override;
  void unwatch(control::Loop::Watch watch) override { loop_.unwatch(watch); }
  void refused(const Status& why) override;

 private:
  control::Loop& loop_;
  RunningJobs& jobs_;
  Peers& peers_;
  const control::JobSpec& spec_;
};

}  // namespace muster::supervisor
