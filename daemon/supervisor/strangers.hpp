// Strangers: engines that came from a predecessor and whose job no state names. They are ended: nothing is
// left that nobody owns.
#pragma once

#include "daemon/control/loop.hpp"
#include "daemon/supervisor/engine_process.hpp"

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

namespace muster::supervisor {

// Owns    the engines, until they have ended.
// Thread  the supervisor's loop.
// Bound   as many as came; kEndTime from "stop" to SIGKILL.
// Fails   never.
class Strangers {
 public:
  static constexpr Nanos kEndTime = std::chrono::seconds(10);

  explicit Strangers(control::Loop& loop) : loop_(loop) {}

  // Its clients hear why, and have the time to go. An engine without a channel, or one that speaks otherwise,
  // is killed. `first_serial`: as in EngineProcess::Options.
  void end(shm::Descriptor channel, shm::Descriptor pidfd, std::uint32_t first_serial,
           const std::string& why);
  void kill(shm::Descriptor channel, shm::Descriptor pidfd);

 private:
  std::size_t take(shm::Descriptor channel, shm::Descriptor pidfd, std::uint32_t first_serial);
  void ask_to_stop(std::size_t index, const std::string& why);

  control::Loop& loop_;
  std::vector<std::unique_ptr<EngineProcess>> engines_;  // null: it has ended
};

}  // namespace muster::supervisor
