// Running a collective: directly with the other members, or started on its usual lane and waited for.
#include "api/base/collective.hpp"
#include "api/base/dtype.hpp"
#include "api/base/fault_point.hpp"
#include "api/client/digest.hpp"
#include "api/client/forks.hpp"
#include "api/client/session.hpp"

#include <algorithm>
#include <chrono>
#include <thread>

using muster::Code;
using muster::fail;
using muster::failure;
using muster::Nanos;
using muster::Result;
using muster::Status;
namespace shm = muster::shm;

// A plan that has been run before, by the members themselves, in a session that is open, and whose results
// are not sampled.
inline const muster::client::DirectPlan* muster_session::at_hand(muster_plan plan) const {
  if (muster::client::forks() != forks_ || !loss_.ok() || reader_.closed() != Code::kOk) return nullptr;
  const PlanRecord* record = find(plan);
  if (record == nullptr || record->direct == nullptr || welcome().digests != 0) return nullptr;
  return record->direct->choice.path == muster::Path::kDirect ? record->direct.get() : nullptr;
}

Status muster_session::conclude_at_hand(const muster::client::DirectPlan& plan, Nanos timeout,
                                        muster::client::Outcome outcome) {
  return spend_interrupt(direct_->conclude(plan, timeout, outcome));
}

namespace {

constexpr std::uint64_t kSmallBytes = 64 << 10;
constexpr Nanos kRoomPause = std::chrono::microseconds(50);

Status run(muster_session* session, muster_plan plan, std::int64_t timeout_ns) {
  if (timeout_ns < 0)
    return failure(Code::kBadArgument, "timeout_ns {} is negative; 0 is the job's default", timeout_ns);
  return session->run(plan, Nanos(timeout_ns));
}

// The same where nothing stands in the way: little else is done, since small operations take no longer.
muster_status_t run_usable(muster_session* session, muster_plan plan, std::int64_t timeout_ns) {
  using muster::client::report;
  if (session == nullptr) return report(failure(Code::kBadArgument, "session must not be NULL"));
  const auto* at_hand = session->at_hand(plan);
  if (at_hand == nullptr || timeout_ns < 0) {
    const Status status = session->usable();
    return report(status.ok() ? run(session, plan, timeout_ns) : status);
  }
  const Nanos timeout(timeout_ns == 0 ? session->welcome().deadline_ns : timeout_ns);
  const auto outcome = session->direct().attempt(*at_hand, timeout);
  if (outcome == muster::client::Outcome::kDone) return MUSTER_OK;
  return report(session->conclude_at_hand(*at_hand, timeout, outcome));
}

}  // namespace

// A function of what all members agree on, so that they meet.
muster_lane muster::client::usual_lane(const shm::PlanCollective& m) {
  switch (m.op) {
    case MUSTER_ALL_GATHER:
    case MUSTER_GATHER:
      return MUSTER_LANE_GATHER;
    case MUSTER_REDUCE_SCATTER:
    case MUSTER_REDUCE:
      return MUSTER_LANE_REDUCE;
    case MUSTER_ALL_REDUCE:
      return m.count <= kSmallBytes / std::max<std::size_t>(dtype_bytes(m.dtype), 1) ? MUSTER_LANE_SMALL
                                                                                     : MUSTER_LANE_ALLREDUCE;
    case MUSTER_EXCHANGE:
      return MUSTER_LANE_HALO;
    case MUSTER_BARRIER:
      return MUSTER_LANE_SMALL;
    default:
      return MUSTER_LANE_COPY;
  }
}

Result<muster_session::PlanRecord*> muster_session::runnable(muster_plan plan) {
  PlanRecord* record = find(plan);
  if (record == nullptr) return fail(Code::kStale, "no such plan");
  if (!record->usual_lane)
    return fail(Code::kBadArgument, "a kernel's plan is started, not run; only collectives run");
  return record;
}

Status muster_session::run_alone(muster_plan plan, Nanos timeout) {
  MUSTER_ASSIGN_OR_RETURN(PlanRecord* const record, runnable(plan));
  return spend_interrupt(direct_ != nullptr ? run_directly(*record, timeout)
                                            : run_by_engine(*record, timeout));
}

Status muster_session::run(muster_plan plan, Nanos timeout) {
  return spend_interrupt(run_once(plan, timeout));
}

Status muster_session::run_once(muster_plan plan, Nanos timeout) {
  MUSTER_ASSIGN_OR_RETURN(PlanRecord* const record, runnable(plan));
  if (direct_ == nullptr) {
    MUSTER_RETURN_IF_ERROR(check_lane(*record->usual_lane));
    return run_by_engine(*record, timeout);
  }
  const bool sampled =
      welcome().digests != 0 && muster::client::is_shared_result(record->told->described.what);
  return sampled ? run_sampled(plan, timeout) : run_directly(*record, timeout);
}

// All members count alike: an operation counts once they have agreed on it.
Status muster_session::run_sampled(muster_plan plan, Nanos timeout) {
  const muster_group group = find(plan)->told->described.group;
  // What may be refused to this rank alone is asked for before others wait for it. Records move when a plan
  // is made.
  MUSTER_RETURN_IF_ERROR(comparison_.prepare(group));
  PlanRecord& record = *find(plan);
  std::uint64_t counted = 0;
  MUSTER_RETURN_IF_ERROR(run_directly(record, timeout, &counted));
  const muster::client::DirectPlan& direct = *record.direct;
  MUSTER_FAULT_MEMORY("result.written", direct.mine.target, direct.target_bytes);
  if (counted % welcome().digests != 0) return {};
  const auto held = muster::client::held_of(direct);
  const std::string what = muster::client::result_name(direct, record.told->message.site);
  return comparison_.compare(group, held, what, timeout);
}

// Seats are found and the path is chosen at the first run.
Status muster_session::seat(PlanRecord& record) {
  if (record.direct != nullptr) return {};
  MUSTER_ASSIGN_OR_RETURN(auto made, direct_->plan(record.plan, record.told->described));
  record.direct = std::make_unique<muster::client::DirectPlan>(std::move(made));
  MUSTER_FAULT_POINT("plan.seated");
  return {};
}

// Of a run by the engine: what fails at once must not do so after the others have met this rank and wait in
// the engine, nor have begun there. All meet once the lane runs again.
Status muster_session::check_lane(muster_lane lane) {
  if (const Code code = reset_if_asked(lane); code != Code::kOk) return not_pushed(code);
  if (const auto why = reader_.failure(lane))
    return failure(
        Code::kState,
        "the run goes by the engine on lane {}, which stands still ({}) until muster_lane_reset; it has "
        "not begun",
        lane, why->text.empty() ? muster::code_sentence(why->status) : why->text);
  return lane_full(lane) ? full(lane) : Status();
}

Status muster_session::run_directly(PlanRecord& record, Nanos timeout, std::uint64_t* counted) {
  if (record.direct == nullptr) MUSTER_RETURN_IF_ERROR(seat(record));
  const bool by_engine = record.direct->choice.path == muster::Path::kEngine;
  if (by_engine) MUSTER_RETURN_IF_ERROR(check_lane(*record.usual_lane));
  MUSTER_RETURN_IF_ERROR(
      direct_->run(*record.direct, timeout.count() > 0 ? timeout : Nanos(welcome().deadline_ns)));
  if (counted != nullptr) *counted = record.direct->channel->count_shared();
  return by_engine ? run_agreed(record, timeout) : Status();
}

// The others wait in the engine already.
Status muster_session::run_agreed(const PlanRecord& record, Nanos timeout) {
  const muster::Instant deadline =
      muster::later(clock_.now(), timeout.count() > 0 ? timeout : this->timeout());
  while (true) {
    Status status = run_by_engine(record, timeout);
    // A full ring: the engine is about to empty it.
    if (status.code() != Code::kBusy || clock_.now() >= deadline) return status;
    std::this_thread::sleep_for(kRoomPause);
  }
}

Status muster_session::run_by_engine(const PlanRecord& record, Nanos timeout) {
  muster_submit submit = MUSTER_SUBMIT_INIT;
  submit.lane = *record.usual_lane;
  submit.deadline_ns = timeout.count();
  muster_point point = MUSTER_POINT_NONE;
  const Code code = start(record.plan, submit, &point);
  if (code != Code::kOk) return not_started(code, record.plan, submit);
  // The engine gives its verdict at the deadline; beyond, it is the session's patience that ends.
  const Nanos deadline = timeout.count() > 0 ? timeout : Nanos(welcome().deadline_ns);
  const bool endless = deadline > Nanos::max() - this->timeout();
  Status status = await(point, endless ? Nanos::max() : deadline + this->timeout());
  if (status.code() == Code::kWaitInterrupted)
    status = leave_lane(record.told->message.group, submit.lane, point);
  if (status.ok() || status.code() == Code::kWaitTimeout) return status;
  // What failed is told once, and the group may run again. A lane that others had stopped before stays so.
  const auto why = reader_.failure(submit.lane);
  if (why && why->failed_from == shm::point_value(point)) static_cast<void>(reset(submit.lane));
  return status;
}

// What is launched already ends soon, and well: then the interrupt came too late for it.
Status muster_session::leave_lane(muster_group group, muster_lane lane, muster_point point) {
  MUSTER_RETURN_IF_ERROR(leave(group, 0, lane));
  Status status = as_interrupted(await(point, timeout(), Interrupts::kIgnored));
  note_failure(status, lane, point);
  return status;
}

extern "C" {

muster_status_t muster_plan_run(muster_session* session, muster_plan plan, int64_t timeout_ns) {
  return muster::client::guarded([&] { return run_usable(session, plan, timeout_ns); });
}

muster_status_t muster_run(muster_session* session, const muster_collective* collective, int64_t timeout_ns) {
  return muster::client::guarded([&]() -> Status {
    if (session == nullptr || collective == nullptr)
      return failure(Code::kBadArgument, "session and description must not be NULL");
    MUSTER_RETURN_IF_ERROR(session->usable());
    MUSTER_ASSIGN_OR_RETURN(const muster_plan plan, session->cached(*collective));
    return run(session, plan, timeout_ns);
  });
}
}
