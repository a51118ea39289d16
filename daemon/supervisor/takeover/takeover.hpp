// Takeover: how a supervisor takes over from one that was killed or has given way.
//
//   what was kept -> the state -> its jobs, with their engines -> each engine's report -> over
//
// The state holds the facts that engines cannot report; the engines report the rest. Engines that the state
// does not name are ended, and other descriptors are discarded.
#pragma once

#include "api/base/clock.hpp"
#include "daemon/control/loop.hpp"
#include "daemon/supervisor/jobs/running_jobs.hpp"
#include "daemon/supervisor/listener/acceptor.hpp"
#include "daemon/supervisor/listener/connections.hpp"
#include "daemon/supervisor/takeover/orphaned_engines.hpp"
#include "daemon/supervisor/takeover/restored_descriptors.hpp"
#include "daemon/supervisor/takeover/saved_state.hpp"

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace muster::supervisor {

// Owns    the orphaned engines, which have no job, and how long the takeover took.
// Thread  the supervisor's loop.
// Bound   what was kept.
// Fails   never. A job that cannot be taken over is ended, and says why.
class Takeover {
 public:
  // The objects that receive what was kept.
  struct Receivers {
    Acceptor& acceptor;
    SavedState& saved;
    JobTable& table;
    RunningJobs& jobs;
    JobMemory& memory;
    Connections& connections;
    DescriptorStore& store;
    Identities& identities;
  };
  Takeover(control::Loop& loop, const Clock& clock, Receivers receivers,
           std::function<std::uint64_t()> random_word, std::function<void()> save);

  void begin(RestoredDescriptors restored);
  // Ends the takeover once each engine has reported, is ending, or is gone. To be called when a job is gone.
  void conclude();
  // From a predecessor's exec, or this one's start, to the last engine's report; 0: not over yet.
  Nanos time() const { return time_; }

 private:
  void adopt_job(const SavedJob& job, RestoredDescriptors& restored);
  void adopt_memory(const control::JobSpec& spec, RestoredDescriptors& restored);
  void adopt_owners(const std::vector<SavedJob>& jobs, RestoredDescriptors& restored);
  void end_orphans(RestoredDescriptors& restored, const SavedState::Predecessor& predecessor);
  void conclude_job(const SavedJob& job);
  void ask_report(const std::string& job, std::uint64_t epoch);
  void on_report(const std::string& job, std::uint64_t epoch, const Result<control::Packet>& answer);

  control::Loop& loop_;
  const Clock& clock_;
  Receivers receivers_;
  std::function<std::uint64_t()> random_word_;
  std::function<void()> save_;
  OrphanedEngines orphaned_engines_;
  Instant began_{0};
  Nanos time_{0};
  bool open_ = false;  // an engine's report is awaited
};

}  // namespace muster::supervisor
