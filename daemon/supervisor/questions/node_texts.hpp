// NodeTexts: this node's reports on its part of a job, as text, for a command line that shows all nodes.
//
//   flight   what its ranks have run: daemon/control/README.md, `flight` of an engine
//   groups   the groups that it knows: `groups` of an engine
//   figures  the counters of its ranks and groups (daemon/control/job_look.hpp). The engine is not asked
#pragma once

#include "api/base/clock.hpp"
#include "daemon/supervisor/jobs/running_jobs.hpp"

#include <functional>
#include <string>
#include <string_view>

namespace muster::supervisor {

// Owns    nothing.
// Thread  the supervisor's loop.
// Bound   as EngineProcess::ask. A text of an engine may be of any size, and anything: its reader checks it.
// Fails   each question: the engine's error; kState (there are no counters yet); kProtocol.
class NodeTexts {
 public:
  // A memory file with JSON, or why not. It may be called at once.
  using Said = std::function<void(Result<shm::Descriptor>)>;

  NodeTexts(RunningJobs& jobs, const Clock& clock) : jobs_(jobs), clock_(clock) {}

  static bool is_kind(std::string_view kind);
  // The job must be in the table.
  void ask(const std::string& job, const std::string& kind, const Said& said);

 private:
  Result<shm::Descriptor> figures(const std::string& job) const;

  RunningJobs& jobs_;
  const Clock& clock_;
};

}  // namespace muster::supervisor
