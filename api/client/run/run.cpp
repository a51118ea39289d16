#include "api/client/run/run.hpp"

#include "api/base/dtype.hpp"
#include "api/base/fault_point.hpp"
#include "api/client/digest.hpp"
#include "api/client/submit/refusal.hpp"

#include <algorithm>
#include <chrono>
#include <thread>

namespace muster::client {
namespace {

constexpr Nanos kRoomPause = std::chrono::microseconds(50);
constexpr Nanos kQuarantine = std::chrono::seconds(1);

}  // namespace

Result<PlanRecord*> Runs::runnable(muster_plan plan) {
  PlanRecord* record = plans_.find(plan);
  if (record == nullptr) return fail(no_such_plan(plan));
  if (!record->usual_lane)
    return fail(Code::kBadArgument, "a kernel's plan is started, not run; only collectives run");
  return record;
}

Status Runs::run_alone(muster_plan plan, Nanos timeout) {
  MUSTER_ASSIGN_OR_RETURN(PlanRecord* const record, runnable(plan));
  if (direct_ != nullptr) MUSTER_RETURN_IF_ERROR(prepare(*record));
  const bool directly = direct_ != nullptr && !record->by_engine;
  return interrupt_.spend(directly ? run_directly(*record, timeout) : run_by_engine(*record, timeout));
}

Status Runs::run(muster_plan plan, Nanos timeout) {
  return interrupt_.spend(run_once(plan, timeout));
}

Status Runs::run_once(muster_plan plan, Nanos timeout) {
  MUSTER_ASSIGN_OR_RETURN(PlanRecord* const record, runnable(plan));
  if (direct_ != nullptr) MUSTER_RETURN_IF_ERROR(prepare(*record));
  const bool by_engine = direct_ == nullptr || record->by_engine;
  if (by_engine) MUSTER_RETURN_IF_ERROR(submission_.check_lane(*record->usual_lane));
  const bool sampled = direct_ != nullptr && connection_.welcome().digests != 0 &&
                       is_shared_result(record->told->described.what, by_engine);
  if (sampled) return run_sampled(plan, timeout);
  return by_engine ? run_by_engine(*record, timeout) : run_directly(*record, timeout);
}

// All members have the same count, because an operation counts only after they have agreed on it.
Status Runs::run_sampled(muster_plan plan, Nanos timeout) {
  const muster_group group = plans_.find(plan)->told->message.group;
  // Does all that may be refused to this rank alone before others wait for it. This may make a plan, which
  // moves the records: find the record afterwards.
  MUSTER_RETURN_IF_ERROR(comparison_.prepare(group));
  PlanRecord& record = *plans_.find(plan);
  std::uint64_t counted = 0;
  if (record.by_engine) {
    MUSTER_RETURN_IF_ERROR(run_by_engine(record, timeout));
    counted = comparison_.count_shared(completion_.group_epoch(*record.usual_lane));
  } else {
    MUSTER_RETURN_IF_ERROR(run_directly(record, timeout, &counted));
  }
  const Collective& what = record.told->described.what;
  const Share& mine = record.told->described.mine;
  MUSTER_FAULT_MEMORY("result.written", mine.target, got_count(mine) * dtype_bytes(what.dtype));
  if (counted % connection_.welcome().digests != 0) return {};
  return compare(group, held_of(what, mine), result_name(what, record.told->message.site), timeout);
}

Status Runs::compare(muster_group group, const Held& held, std::string_view what, Nanos timeout) {
  MUSTER_FAULT_POINT("digest.taken");
  MUSTER_ASSIGN_OR_RETURN(const muster_plan plan, comparison_.offer(group, held));
  MUSTER_RETURN_IF_ERROR(run_alone(plan, timeout));
  MUSTER_FAULT_POINT("digest.gathered");
  const Status judged = comparison_.judged(group, what);
  last_failure_.note(judged);
  return interrupt_.spend(judged);
}

// Member regions are found and the path is chosen at the first run.
Status Runs::prepare(PlanRecord& record) {
  if (record.direct != nullptr || record.by_engine) return {};
  auto made = direct_->plan(record.plan, record.told->described);
  record.by_engine = !made && made.error().code() == Code::kUnsupported;
  if (record.by_engine) return {};
  if (!made) return made.error();
  record.direct = std::make_unique<DirectPlan>(*std::move(made));
  MUSTER_FAULT_POINT("plan.seated");
  return {};
}

Status Runs::run_directly(PlanRecord& record, Nanos timeout, std::uint64_t* counted) {
  const bool by_engine = record.direct->choice.path == Path::kEngine;
  if (by_engine) MUSTER_RETURN_IF_ERROR(submission_.check_lane(*record.usual_lane));
  MUSTER_RETURN_IF_ERROR(direct_->run(*record.direct, real(*record.direct, timeout)));
  if (counted != nullptr) *counted = record.direct->channel->count_shared();
  return by_engine ? run_agreed(record, timeout) : Status();
}

// Tries until the start is accepted: the other members may wait in the engine already.
Status Runs::run_agreed(const PlanRecord& record, Nanos timeout) {
  const Instant deadline =
      later(connection_.clock().now(), timeout.count() > 0 ? timeout : connection_.timeout());
  while (true) {
    Status status = run_by_engine(record, timeout);
    // The ring is full; the engine empties it soon.
    if (status.code() != Code::kBusy || connection_.clock().now() >= deadline) return status;
    std::this_thread::sleep_for(kRoomPause);
  }
}

Status Runs::run_by_engine(const PlanRecord& record, Nanos timeout) {
  muster_submit submit = MUSTER_SUBMIT_INIT;
  submit.lane = *record.usual_lane;
  submit.deadline_ns = timeout.count();
  muster_point point = MUSTER_POINT_NONE;
  const Code code = submission_.start(record.plan, submit, &point);
  if (code != Code::kOk) return submission_.not_started(code, record.plan, submit);
  // The engine ends the operation at the deadline. If it does not, the wait ends after the session's timeout.
  const Nanos deadline = timeout.count() > 0 ? timeout : groups_.deadline(record.told->message.group);
  const bool endless = deadline > Nanos::max() - connection_.timeout();
  Status status = waiting_.await(point, endless ? Nanos::max() : deadline + connection_.timeout());
  if (status.code() == Code::kWaitInterrupted)
    status = leave_lane(record.told->message.group, submit.lane, point);
  if (status.ok() || status.code() == Code::kWaitTimeout) return status;
  // This failure is reported once, and the group may run again. A lane that an earlier failure stopped stays
  // stopped.
  const auto why = completion_.failure(submit.lane);
  if (why && why->failed_from == shm::point_value(point)) resume(submit.lane);
  return status;
}

// The engine gives up a step between nodes that has passed its deadline soon after its members know. Until
// then its memory is in quarantine, and the lane stays stopped (BUSY).
void Runs::resume(muster_lane lane) {
  const Instant end = later(connection_.clock().now(), kQuarantine);
  while (submission_.reset(lane) == Code::kBusy && connection_.clock().now() < end)
    std::this_thread::sleep_for(kRoomPause);
}

// A step that is already launched ends soon and with success: the interrupt came too late for it.
Status Runs::leave_lane(muster_group group, muster_lane lane, muster_point point) {
  MUSTER_RETURN_IF_ERROR(interrupt_.leave(group, 0, lane));
  Status status =
      interrupt_.as_interrupted(waiting_.await(point, connection_.timeout(), Waiting::Interrupts::kIgnored));
  last_failure_.note(status, lane, point);
  return status;
}

}  // namespace muster::client
