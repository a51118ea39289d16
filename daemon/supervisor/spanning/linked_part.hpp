// LinkedPart: this node's part of a job, as the links with the other nodes' engines use it: it carries
// messages to the other nodes, and questions and commands to this node's engine.
#pragma once

#include "daemon/supervisor/jobs/running_jobs.hpp"
#include "daemon/supervisor/peers/peers.hpp"
#include "daemon/supervisor/spanning/engine_link.hpp"

#include <cstdint>
#include <functional>

namespace muster::supervisor {

// Owns    the epoch of the part.
// Thread  the supervisor's loop.
// Bound   as the engine's channel and the connections with peers.
// Fails   never; the engine's answers do.
class LinkedPart final : public EngineLink::World {
 public:
  // `spec` outlives this object.
  LinkedPart(control::Loop& loop, RunningJobs& jobs, Peers& peers, const control::JobSpec& spec,
             std::function<void()> changed);

  // 0: it does not stand.
  std::uint64_t epoch() const { return epoch_; }
  void set_epoch(std::uint64_t epoch) { epoch_ = epoch; }
  control::Json about(const char* step) const;

  bool may_try(const EngineLink& link) const override;
  void send(const EngineLink& link, const char* step, const control::EngineAddress* address,
            std::uint32_t generation) override;
  void ask_engine(const EngineLink& link, Answered answered) override;
  void connect(const EngineLink& link, const control::EngineCall& call,
               std::function<void(const Status&)> answered) override;
  void tell_lost(const EngineLink& link, const Status& why, EngineLink::Fate fate) override;
  control::Loop::Watch after(Nanos delay, std::function<void()> callback) override;
  void unwatch(control::Loop::Watch watch) override { loop_.unwatch(watch); }
  void changed() override { changed_(); }
  void refused(const EngineLink& link, const Status& why) override;

 private:
  Result<EngineLink::Network> network_in(const Result<control::Packet>& packet, NodeIndex other) const;

  control::Loop& loop_;
  RunningJobs& jobs_;
  Peers& peers_;
  const control::JobSpec& spec_;
  const std::function<void()> changed_;
  std::uint64_t epoch_ = 0;
};

}  // namespace muster::supervisor
