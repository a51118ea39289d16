// Runs: collectives that are run, not started. They go directly between members, or by the engine on the
// operation's usual lane, with a wait.
#pragma once

#include "api/client/connection.hpp"
#include "api/client/digest.hpp"
#include "api/client/groups.hpp"
#include "api/client/interrupt.hpp"
#include "api/client/last_failure.hpp"
#include "api/client/run/compare.hpp"
#include "api/client/run/direct_path.hpp"
#include "api/client/run/waiting.hpp"
#include "api/client/submit/plan_table.hpp"
#include "api/client/submit/submission.hpp"
#include "api/shm/completion.hpp"

#include <muster/muster.h>

#include <cstdint>
#include <string_view>

namespace muster::client {

// Owns    nothing; a run changes its plan's record and the objects that it uses.
// Thread  the session's.
// Bound   one operation at a time; a timeout of 0 is the group's default.
// Fails   as DirectPath::run or as the start's point; STATE and BUSY if the lane takes no start: then the run
//         has not begun. CORRUPT and MISMATCH: the data of members differs.
class Runs {
 public:
  // All outlive it. direct: null in a job without the direct path.
  Runs(Connection& connection, Groups& groups, shm::CompletionReader& completion, PlanTable& plans,
       Submission& submission, Waiting& waiting, Interrupt& interrupt, LastFailure& last_failure,
       Comparison& comparison, DirectPath* direct)
      : connection_(connection),
        groups_(groups),
        completion_(completion),
        plans_(plans),
        submission_(submission),
        waiting_(waiting),
        interrupt_(interrupt),
        last_failure_(last_failure),
        comparison_(comparison),
        direct_(direct) {}

  // The plan if it can run at once: this rank has run it directly before, and its results are not compared.
  // nullptr: call run(), which does the missing steps.
  const DirectPlan* at_hand(muster_plan plan) const {
    const PlanRecord* record = plans_.find(plan);
    if (record == nullptr || record->direct == nullptr || connection_.welcome().digests != 0) return nullptr;
    return record->direct->choice.path == Path::kDirect ? record->direct.get() : nullptr;
  }
  // The two halves of a run of such a plan: the operation, and the handling of one that is not done.
  Outcome attempt(const DirectPlan& plan, Nanos timeout) {
    return direct_->attempt(plan, real(plan, timeout));
  }
  Status conclude(const DirectPlan& plan, Nanos timeout, Outcome outcome) {
    return interrupt_.spend(direct_->conclude(plan, real(plan, timeout), outcome));
  }
  // The rank is about to give the group up: waits until all have read the data that it has staged for them.
  void drain(muster_group group) {
    if (direct_ != nullptr) direct_->drain(group, groups_.deadline(group));
  }
  // After every digests-th shared result (Welcome::digests) the members compare their results.
  Status run(muster_plan plan, Nanos timeout);
  // Gathers the digests of all members' data and compares them; all get the same result. The text names
  // `what`.
  Status compare(muster_group group, const Held& held, std::string_view what, Nanos timeout);

 private:
  static Nanos real(const DirectPlan& plan, Nanos timeout) {
    return timeout.count() > 0 ? timeout : *plan.deadline;
  }
  Status run_once(muster_plan plan, Nanos timeout);
  // Runs without a comparison.
  Status run_alone(muster_plan plan, Nanos timeout);
  Status run_sampled(muster_plan plan, Nanos timeout);
  // *counted, if not null: number of shared results of the group so far, with this one.
  Status run_directly(PlanRecord& record, Nanos timeout, std::uint64_t* counted = nullptr);
  Status run_agreed(const PlanRecord& record, Nanos timeout);
  Status run_by_engine(const PlanRecord& record, Nanos timeout);
  void resume(muster_lane lane);
  Result<PlanRecord*> runnable(muster_plan plan);
  Status prepare(PlanRecord& record);
  Status leave_lane(muster_group group, muster_lane lane, muster_point point);

  Connection& connection_;
  Groups& groups_;
  shm::CompletionReader& completion_;
  PlanTable& plans_;
  Submission& submission_;
  Waiting& waiting_;
  Interrupt& interrupt_;
  LastFailure& last_failure_;
  Comparison& comparison_;
  DirectPath* direct_;
};

}  // namespace muster::client
