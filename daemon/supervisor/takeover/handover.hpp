// Handover: replaces this program by another, in the same process. It first asks the other program whether it
// could take over.
#pragma once

#include "daemon/control/loop.hpp"
#include "daemon/supervisor/base/descriptor_store.hpp"
#include "daemon/supervisor/jobs/running_jobs.hpp"
#include "daemon/supervisor/listener/listeners.hpp"
#include "daemon/supervisor/takeover/program_check.hpp"
#include "daemon/supervisor/takeover/saved_state.hpp"

#include <functional>
#include <memory>
#include <optional>
#include <string>

namespace muster::supervisor {

// Owns    the check of an upgrade that is under way.
// Thread  the supervisor's loop.
// Bound   one upgrade at a time; ProgramCheck::kTime for its check.
// Fails   begin: kUnsupported (no program of its own), kState (shutting down), kBusy; as TrustedProgram,
//         ProgramCheck and replace_program. After a failure this daemon goes on.
class Handover {
 public:
  using Refused = std::function<void(const Status&)>;

  Handover(control::Loop& loop, const Clock& clock, const Options& options, const Listeners& listeners,
           const RunningJobs& jobs, const DescriptorStore& store, SavedState& saved,
           std::function<void()> save);

  // `program`: its path; empty: the path of this program, whose file a package may have replaced. `refused`
  // is called if this daemon goes on, perhaps before begin() returns.
  void begin(const std::string& program, const Refused& refused);

 private:
  Result<TrustedProgram> program_at(const std::string& path) const;
  void on_checked(const Status& answer, const Refused& refused);
  Status give_way(const TrustedProgram& program);
  void tell(const std::string& text) const;

  control::Loop& loop_;
  const Clock& clock_;
  const Options& options_;
  const Listeners& listeners_;
  const RunningJobs& jobs_;
  const DescriptorStore& store_;
  SavedState& saved_;
  std::function<void()> save_;
  std::optional<TrustedProgram> next_;  // while it is checked
  std::unique_ptr<ProgramCheck> check_;
};

}  // namespace muster::supervisor
