// Running a collective: directly with the other members, or started on its usual lane and waited for.
#include "api/base/collective.hpp"
#include "api/base/dtype.hpp"
#include "api/base/fault_point.hpp"
#include "api/client/session.hpp"

#include <algorithm>

using muster::Code;
using muster::failure;
using muster::Nanos;
using muster::Status;
namespace shm = muster::shm;

namespace {

constexpr std::uint64_t kSmallBytes = 64 << 10;

Status run(muster_session* session, muster_plan plan, std::int64_t timeout_ns) {
  if (timeout_ns < 0)
    return failure(Code::kBadArgument, "timeout_ns {} is negative; 0 is the job's default", timeout_ns);
  return session->run(plan, Nanos(timeout_ns));
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

Status muster_session::run(muster_plan plan, Nanos timeout) {
  PlanRecord* record = find(plan);
  if (record == nullptr) return failure(Code::kStale, "no such plan");
  if (!record->usual_lane)
    return failure(Code::kBadArgument, "a kernel's plan is started, not run; only collectives run");
  return direct_ != nullptr ? run_directly(*record, timeout) : run_by_engine(*record, timeout);
}

// Seats are found and the path is chosen at the first run.
Status muster_session::run_directly(PlanRecord& record, Nanos timeout) {
  if (record.direct == nullptr) {
    MUSTER_ASSIGN_OR_RETURN(auto made, direct_->plan(record.plan, record.told->described));
    record.direct = std::make_unique<muster::client::DirectPlan>(std::move(made));
    MUSTER_FAULT_POINT("plan.seated");
  }
  MUSTER_RETURN_IF_ERROR(
      direct_->run(*record.direct, timeout.count() > 0 ? timeout : Nanos(welcome().deadline_ns)));
  return record.direct->choice.path == muster::Path::kEngine ? run_by_engine(record, timeout) : Status();
}

Status muster_session::run_by_engine(const PlanRecord& record, Nanos timeout) {
  muster_submit submit = MUSTER_SUBMIT_INIT;
  submit.lane = *record.usual_lane;
  submit.deadline_ns = timeout.count();
  muster_point point = MUSTER_POINT_NONE;
  const Code code = start(record.plan, submit, &point);
  if (code != Code::kOk) return Status(code, muster::client::refusal_text(code));
  // The engine gives its verdict at the deadline; beyond, it is the session's patience that ends.
  const Nanos deadline = timeout.count() > 0 ? timeout : Nanos(welcome().deadline_ns);
  const bool endless = deadline > Nanos::max() - this->timeout();
  const Status status = wait(point, endless ? Nanos::max() : deadline + this->timeout());
  if (status.ok() || status.code() == Code::kWaitTimeout) return status;
  // What failed is told once, and the group may run again. A lane that others had stopped before stays so.
  const auto why = reader_.failure(submit.lane);
  if (why && why->failed_from == shm::point_value(point)) static_cast<void>(reset(submit.lane));
  return status;
}

extern "C" {

muster_status_t muster_plan_run(muster_session* session, muster_plan plan, int64_t timeout_ns) {
  return muster::client::guarded([&]() -> Status {
    if (session == nullptr) return failure(Code::kBadArgument, "session must not be NULL");
    MUSTER_RETURN_IF_ERROR(session->usable());
    return run(session, plan, timeout_ns);
  });
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
