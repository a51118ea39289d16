#include "api/client/checked/checked_calls.hpp"

#include "api/client/check/check_mode.hpp"
#include "api/client/session/session.hpp"
#include "api/client/submit/refusal.hpp"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

namespace muster::client {
namespace {

constexpr std::uint64_t kPointOfEntry = MUSTER_POINT_OF_ENTRY(0);

// `earlier`: the points of the batch's entries before this one. Nothing, for a start that will be refused
// anyhow.
std::optional<StartsInFlight::Next> next_start(muster_session& session, muster_plan plan,
                                               const muster_submit& submit,
                                               std::span<const muster_point> earlier = {}) {
  const Timelines& timelines = session.submission().timelines();
  if (!timelines.has_lane(submit.lane)) return std::nullopt;
  auto next = session.check()->plans().next_start(plan, submit);
  if (!next) return std::nullopt;
  for (muster_point& wait : next->waits) {
    const bool is_entry = (wait & ~shm::kPointValueMask) == kPointOfEntry;
    if (is_entry ? shm::point_value(wait) >= earlier.size() : !timelines.may_be_awaited(wait))
      return std::nullopt;
    if (is_entry) wait = earlier[shm::point_value(wait)];
  }
  if ((submit.flags & MUSTER_SUBMIT_OFFSETS) == 0) return next;
  const PlanRecord* const record = session.plans().record(plan);
  const PlanRecord::Told* const told = record == nullptr ? nullptr : record->told.get();
  if (!check_offsets(told, submit).ok()) return std::nullopt;
  const Described& described = told->described;
  next->uses = session.check()->plans().seen(
      uses_of(described.what, described.mine, told->rooms.bases(described.mine, offsets_in(submit))));
  return next;
}

// Records the outcome of a wait: the point is reached, or never will be.
Status learnt(muster_session& session, muster_point point, Status status) {
  if (status.ok()) return session.check()->reach(point);
  if (is_group_failure(status.code())) session.check()->fail(point);
  return status;
}

}  // namespace

Status checked_start(muster_session& session, muster_plan plan, const muster_submit& submit,
                     muster_point* point) {
  CheckMode& check = *session.check();
  const auto next = next_start(session, plan, submit);
  if (next) MUSTER_RETURN_IF_ERROR(check.judge("a start", *next));
  muster_point made = MUSTER_POINT_NONE;
  const Code code = session.submission().start(plan, submit, &made);
  if (code != Code::kOk) return session.submission().not_started(code, plan, submit);
  if (next) check.started(*next, made);
  if (point != nullptr) *point = made;
  return {};
}

// Each entry is judged as if the entries before it were started.
Status checked_start_batch(muster_session& session, std::span<muster_batch_entry> entries,
                           std::size_t* refused) {
  CheckMode& check = *session.check();
  Submission& submission = session.submission();
  const auto before = check.starts().mark();
  std::vector<std::optional<StartsInFlight::Next>> starts;
  std::vector<muster_point> points;
  Status status;
  for (std::size_t i = 0; i < entries.size() && status.ok(); ++i) {
    *refused = i;
    const muster_submit& submit = entries[i].submit;
    auto next =
        submit.size != sizeof submit ? std::nullopt : next_start(session, entries[i].plan, submit, points);
    const auto on_lane = std::count_if(entries.begin(), entries.begin() + static_cast<std::ptrdiff_t>(i) + 1,
                                       [&](const auto& e) { return e.submit.lane == submit.lane; });
    points.push_back(next ? submission.timelines().latest(submit.lane) + static_cast<std::uint64_t>(on_lane)
                          : MUSTER_POINT_NONE);
    if (next) status = check.judge("an entry of a batch", *next);
    if (next) check.starts().add(*next, points.back());
    starts.push_back(std::move(next));
  }
  check.starts().back_to(before);
  MUSTER_RETURN_IF_ERROR(status);
  const Code code = submission.start_batch(entries, refused);
  if (code != Code::kOk)
    return submission.not_started(code, std::span<const muster_batch_entry>(entries), *refused);
  for (std::size_t i = 0; i < entries.size(); ++i)
    if (starts[i]) check.started(*starts[i], entries[i].point);
  return {};
}

Status checked_run(muster_session& session, muster_plan plan, Nanos timeout) {
  CheckMode& check = *session.check();
  MUSTER_RETURN_IF_ERROR(check.judge_run("a run", plan));
  const PlanUses::Plan* const planned = check.plans().find(plan);
  const auto sum = planned == nullptr ? std::nullopt : SourceSums::Sum::of(*planned->uses);
  MUSTER_RETURN_IF_ERROR(session.runs().run(plan, timeout));
  return sum ? check.judge_sum("a run", *sum) : Status();
}

Status checked_wait(muster_session& session, muster_point point, Nanos timeout) {
  return learnt(session, point, session.waiting().wait(point, timeout));
}

Status checked_wait_any(muster_session& session, std::span<const muster_point> points, Nanos timeout,
                        std::size_t* index) {
  Status status = session.waiting().wait_any(points, timeout, index);
  return *index < points.size() ? learnt(session, points[*index], std::move(status)) : status;
}

Status checked_test(muster_session& session, muster_point point) {
  return learnt(session, point, session.waiting().test(point));
}

Status checked_signal(muster_session& session, std::uint32_t timeline, std::uint64_t value) {
  CheckMode& check = *session.check();
  Submission& submission = session.submission();
  const bool is_own = submission.timelines().is_own(timeline);
  if (is_own) MUSTER_RETURN_IF_ERROR(check.judge_signal(timeline, value));
  const Code code = submission.signal(timeline, value);
  if (code == Code::kBadArgument) return cannot_signal(timeline, value, submission.timelines());
  if (code != Code::kOk) return submission.not_pushed(code);
  check.signalled(timeline, value);
  return {};
}

}  // namespace muster::client
