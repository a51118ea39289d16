// RunAbsences: tells the daemon which ranks of a run have ended, so that nobody waits for them. Only the run
// knows that a rank is gone that never attached, or left before others came.
#pragma once

#include "daemon/cli/daemon_link.hpp"
#include "daemon/cli/run/job_joiner.hpp"

#include <cstdint>
#include <functional>
#include <string>

namespace muster::cli {

// Owns    the absences that the daemon has not heard yet, as timers and questions.
// Thread  the loop's. It stays until the loop has stopped.
// Bound   the ranks of the run.
// Fails   never: what the daemon refuses is told again, until end().
class RunAbsences {
 public:
  RunAbsences(control::Loop& loop, DaemonLink& link, const JobJoiner::Job& job);

  void tell(std::uint32_t rank, const std::string& text);
  // All ranks have ended, and nobody is left who waits. A job that stays expects its ranks again.
  void end(const std::function<void()>& next);

 private:
  control::Loop& loop_;
  DaemonLink& link_;
  const std::string job_;
  const bool job_stays_;
  bool over_ = false;
};

}  // namespace muster::cli
