// Plans and one-shot calls of the C API.
#include "api/client/checked/checked_calls.hpp"
#include "api/client/session/session.hpp"

#include <span>

using muster::Code;
using muster::failure;
using muster::Status;
using muster::client::with_session;

namespace {

Status check_submit(const muster_submit* submit) {
  if (submit == nullptr) return failure(Code::kBadArgument, "submit must not be NULL");
  if (submit->size == sizeof(muster_submit)) return {};
  return failure(Code::kBadArgument,
                 "muster_submit has size {}; initialise it with its _INIT macro or builder ({})",
                 submit->size, sizeof(muster_submit));
}

Status start(muster_session& session, muster_plan plan, const muster_submit& submit, muster_point* point) {
  if (session.check() != nullptr) return muster::client::checked_start(session, plan, submit, point);
  muster::client::Submission& submission = session.submission();
  const Code code = submission.start(plan, submit, point);
  return code == Code::kOk ? Status() : submission.not_started(code, plan, submit);
}

// Reports why a start was refused with that code.
[[gnu::noinline]] muster_status_t not_started(muster_session* session, muster_plan plan,
                                              const muster_submit* submit, Code code) {
  return with_session(session, [&]() -> Status {
    MUSTER_RETURN_IF_ERROR(check_submit(submit));
    // NOLINTNEXTLINE(clang-analyzer-core.NonNullParamChecker): check_submit() refuses NULL
    return session->submission().not_started(code, plan, *submit);
  });
}

// Starts a plan the slow way: the session is not usable or in check mode, or arguments are refused.
[[gnu::noinline]] muster_status_t start_elsewhere(muster_session* session, muster_plan plan,
                                                  const muster_submit* submit, muster_point* point) {
  return with_session(session, [&]() -> Status {
    MUSTER_RETURN_IF_ERROR(check_submit(submit));
    // NOLINTNEXTLINE(clang-analyzer-core.NonNullParamChecker): check_submit() refuses NULL
    return start(*session, plan, *submit, point);
  });
}

Status run(muster_session& session, muster_plan plan, std::int64_t timeout_ns) {
  if (timeout_ns < 0)
    return failure(Code::kBadArgument, "timeout_ns {} is negative; 0 is the group's default", timeout_ns);
  if (session.check() != nullptr)
    return muster::client::checked_run(session, plan, muster::Nanos(timeout_ns));
  return session.runs().run(plan, muster::Nanos(timeout_ns));
}

// Runs a plan the slow way: the session is not usable, or in check mode.
[[gnu::noinline]] muster_status_t run_elsewhere(muster_session* session, muster_plan plan,
                                                std::int64_t timeout_ns) {
  return with_session(session, [&] { return run(*session, plan, timeout_ns); });
}

// The fast way for a plan that can run at once does little but the operation: small ones must be fast.
muster_status_t run_on(muster_session* session, muster_plan plan, std::int64_t timeout_ns) {
  using muster::client::report;
  if (session == nullptr) return report(failure(Code::kBadArgument, "session must not be NULL"));
  if (!session->is_usable()) return run_elsewhere(session, plan, timeout_ns);
  muster::client::Runs& runs = session->runs();
  const muster::client::DirectPlan* at_hand = runs.at_hand(plan);
  if (at_hand == nullptr || timeout_ns < 0) return report(run(*session, plan, timeout_ns));
  const muster::Nanos timeout(timeout_ns);
  const auto outcome = runs.attempt(*at_hand, timeout);
  if (outcome == muster::client::Outcome::kDone) return MUSTER_OK;
  return report(runs.conclude(*at_hand, timeout, outcome));
}

// As start_elsewhere(). The text of a finding has its entry too.
Status start_batch_elsewhere(muster_session& session, std::span<muster_batch_entry> batch) {
  MUSTER_RETURN_IF_ERROR(session.usable());
  std::size_t refused = 0;
  const Status why = muster::client::checked_start_batch(session, batch, &refused);
  if (why.ok() || is_session_end(why.code())) return why;
  return failure(why.code(), "entry {}: {}", refused, why.message());
}

template<class Description>
muster_status_t one_shot(muster_session* session, const Description* description, const char* name,
                         const muster_submit* submit, muster_point* point) {
  return muster::client::guarded([&]() -> Status {
    if (session == nullptr || description == nullptr)
      return muster::client::check_given({{"session", session}, {name, description}});
    MUSTER_RETURN_IF_ERROR(check_submit(submit));
    MUSTER_RETURN_IF_ERROR(session->usable());
    MUSTER_ASSIGN_OR_RETURN(const muster_plan plan, session->plans().cached(*description));
    return start(*session, plan, *submit, point);
  });
}

template<class Description>
muster_status_t make_plan(muster_session* session, const Description* description, const char* name,
                          muster_plan* plan) {
  if (plan != nullptr) *plan = 0;
  return muster::client::guarded([&]() -> Status {
    if (session == nullptr || description == nullptr || plan == nullptr)
      return muster::client::check_given({{"session", session}, {name, description}, {"plan", plan}});
    MUSTER_RETURN_IF_ERROR(session->usable());
    MUSTER_ASSIGN_OR_RETURN(*plan, session->plans().make(*description));
    return {};
  });
}

}  // namespace

extern "C" {

muster_status_t muster_plan_start(muster_session* session, muster_plan plan, const muster_submit* submit,
                                  muster_point* point) {
  if (session == nullptr || submit == nullptr || submit->size != sizeof *submit || !session->is_usable())
    return start_elsewhere(session, plan, submit, point);
  const Code code = session->submission().start(plan, *submit, point);
  return code == Code::kOk ? MUSTER_OK : not_started(session, plan, submit, code);
}

muster_status_t muster_plan_start_batch(muster_session* session, muster_batch_entry* entries, size_t count) {
  std::span<muster_batch_entry> batch;
  const muster_status_t status = muster::client::guarded([&]() -> Status {
    MUSTER_RETURN_IF_ERROR(muster::client::check_given({{"session", session}}));
    if (entries == nullptr && count > 0)
      return failure(Code::kBadArgument, "entries is NULL, but count is {}", count);
    if (count > MUSTER_BATCH_MAX)
      return failure(Code::kBadArgument, "count is {}; a batch has {} entries at most", count,
                     MUSTER_BATCH_MAX);
    batch = std::span(entries, count);
    if (!session->is_usable()) return start_batch_elsewhere(*session, batch);
    std::size_t refused = 0;
    muster::client::Submission& submission = session->submission();
    const Code code = submission.start_batch(batch, &refused);
    if (code == Code::kOk) return {};
    const Status why = submission.not_started(code, std::span<const muster_batch_entry>(batch), refused);
    if (why.code() != code) return why;  // the engine is gone
    return failure(code, "entry {}: {}", refused, why.message());
  });
  if (status != MUSTER_OK)
    for (muster_batch_entry& entry : batch) entry.point = MUSTER_POINT_NONE;
  return status;
}

muster_status_t muster_plan_recount(muster_session* session, muster_plan plan, uint64_t count,
                                    const muster_blocks* source_blocks, const muster_blocks* target_blocks) {
  return with_session(session, [&]() -> Status {
    muster_collective counts = MUSTER_COLLECTIVE_INIT;
    counts.count = count;
    if (source_blocks != nullptr) counts.source_blocks = *source_blocks;
    if (target_blocks != nullptr) counts.target_blocks = *target_blocks;
    return session->plans().recount(plan, counts);
  });
}

muster_status_t muster_plan_destroy(muster_session* session, muster_plan plan) {
  return with_session(session, [&] { return session->plans().destroy(plan); });
}

muster_status_t muster_plan_collective(muster_session* session, const muster_collective* collective,
                                       muster_plan* plan) {
  return make_plan(session, collective, "collective", plan);
}
muster_status_t muster_plan_kernel(muster_session* session, const muster_kernel* kernel, muster_plan* plan) {
  return make_plan(session, kernel, "kernel", plan);
}
muster_status_t muster_collect(muster_session* session, const muster_collective* collective,
                               const muster_submit* submit, muster_point* point) {
  return one_shot(session, collective, "collective", submit, point);
}
muster_status_t muster_launch(muster_session* session, const muster_kernel* kernel,
                              const muster_submit* submit, muster_point* point) {
  return one_shot(session, kernel, "kernel", submit, point);
}

muster_status_t muster_plan_run(muster_session* session, muster_plan plan, int64_t timeout_ns) {
  return muster::client::guarded([&] { return run_on(session, plan, timeout_ns); });
}

muster_status_t muster_run(muster_session* session, const muster_collective* collective, int64_t timeout_ns) {
  return muster::client::guarded([&]() -> muster_status_t {
    using muster::client::report;
    if (session == nullptr || collective == nullptr)
      return report(muster::client::check_given({{"session", session}, {"collective", collective}}));
    if (!session->is_usable()) {
      if (const Status usable = session->usable(); !usable.ok()) return report(usable);
    }
    const auto plan = session->plans().cached(*collective);
    return plan ? run_on(session, *plan, timeout_ns) : report(plan.error());
  });
}

muster_status_t muster_barrier(muster_session* session, muster_group group) {
  muster_collective barrier = MUSTER_COLLECTIVE_INIT;
  barrier.op = MUSTER_BARRIER;
  barrier.group = group;
  return muster_run(session, &barrier, 0);
}
}
