// OrphanedEngines: engines of a predecessor whose job is in no state. They are ended, so that no engine is
// left without an owner.
#pragma once

#include "daemon/control/loop.hpp"
#include "daemon/supervisor/base/engine_process.hpp"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace muster::supervisor {

// Owns    the engines, until they have ended.
// Thread  the supervisor's loop.
// Bound   as many as came; kEndTime from "stop" to SIGKILL.
// Fails   never.
class OrphanedEngines {
 public:
  static constexpr Nanos kEndTime = std::chrono::seconds(10);

  explicit OrphanedEngines(control::Loop& loop) : loop_(loop) {}

  // Asks the engine to stop: its clients get the reason, and have time to leave. An engine without a channel,
  // or one with another protocol, is killed. `first_serial`: as in EngineProcess::Options.
  void end(shm::Descriptor channel, shm::Descriptor pidfd, std::uint32_t first_serial,
           const std::string& why);
  void kill(shm::Descriptor channel, shm::Descriptor pidfd);

 private:
  std::size_t take(shm::Descriptor channel, shm::Descriptor pidfd, std::uint32_t first_serial);

  control::Loop& loop_;
  std::vector<std::unique_ptr<EngineProcess>> engines_;  // nullptr: it has ended
};

}  // namespace muster::supervisor
