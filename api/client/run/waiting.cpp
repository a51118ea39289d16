#include "api/client/run/waiting.hpp"

#include "api/base/fault_point.hpp"
#include "api/shm/endpoint.hpp"

#include <algorithm>
#include <utility>

namespace muster::client {
namespace {

constexpr std::uint32_t kSpins = 64;  // tests before a sleep; each gives the core away
// How often a sleeping client looks whether the engine is still there.
constexpr Nanos kLossCheckPeriod = std::chrono::milliseconds(200);
// The period of its checks for an interrupt, which wakes no caller.
constexpr Nanos kInterruptCheckPeriod = std::chrono::milliseconds(50);
constexpr std::uint32_t kTestsPerLook = 16;  // a look reads the clock: too slow for each test

}  // namespace

Status Waiting::outcome(muster_point point, Code code) {
  if (code == Code::kOk || code == Code::kPending) return Status(code, "");
  const std::uint32_t timeline = shm::point_timeline(point);
  if (code == Code::kBadArgument && timeline < shm::kLanesMax)
    return failure(code, "the point is start {} of lane {}, which this session has not made: its last is {}",
                   shm::point_value(point), timeline, timelines_.started(timeline));
  if (code == Code::kBadArgument)
    return failure(code,
                   "point {:#x} is of timeline {}, which is no lane and none that this session has created",
                   point, timeline);
  if (timeline >= shm::kLanesMax) return connection_.in_words(code);
  auto why = completion_.failure(timeline);
  // The page has the text of the lane's present failure; the point may belong to an earlier one.
  const bool its_own =
      why && !why->text.empty() && why->status == code && shm::point_value(point) >= why->failed_from;
  const Status status = its_own ? Status(code, why->text, why->culprit_rank) : connection_.in_words(code);
  last_failure_.note(status, timeline, its_own ? shm::make_point(timeline, why->failed_from) : point);
  return status;
}

Status Waiting::test(muster_point point) {
  if (const auto own = timelines_.verdict(point)) return outcome(point, *own);
  const Code code = completion_.test(point);
  if (code == Code::kPending)
    if (const auto loss = loss_seen_in_passing()) return *loss;
  return outcome(point, code);
}

// Lets a caller that only tests see a lost engine: every kTestsPerLook-th pending test looks for it.
std::optional<Status> Waiting::loss_seen_in_passing() {
  if (!connection_.loss().ok()) return connection_.loss();
  return ++pending_tests_ % kTestsPerLook == 0 ? connection_.loss_of_silent_engine() : std::nullopt;
}

Status Waiting::wait(muster_point point, Nanos timeout) {
  return interrupt_.spend(await(point, timeout));
}

Status Waiting::await(muster_point point, Nanos timeout, Interrupts interrupts) {
  if (const auto own = timelines_.verdict(point)) {
    // Only this thread could raise the point, so a wait could never end well.
    if (*own == Code::kPending && timeout.count() == 0)
      return failure(Code::kWaitTimeout, "the point was not reached within the wait's time");
    return *own == Code::kPending
               ? failure(Code::kState, "the point is of a timeline that this session raises itself")
               : outcome(point, *own);
  }
  return wait_in_slices(timeout, interrupts, [&](Instant until) {
    return std::pair(point, completion_.wait(point, kSpins, until, connection_.clock()));
  });
}

Status Waiting::wait_any(std::span<const muster_point> points, Nanos timeout, std::size_t* index) {
  bool any = false;
  bool others_raise = false;
  *index = points.size();
  for (std::size_t i = 0; i < points.size(); ++i) {
    if (points[i] == MUSTER_POINT_NONE) continue;
    const auto own = timelines_.verdict(points[i]);
    any = true;
    others_raise = others_raise || !own;
    const Code code = own ? *own : completion_.test(points[i]);
    if (code == Code::kPending) continue;
    *index = i;
    return interrupt_.spend(outcome(points[i], code));
  }
  if (!any) return {};
  if (timeout.count() == 0) {
    if (const auto loss = others_raise ? loss_seen_in_passing() : std::nullopt) return *loss;
    return failure(Code::kWaitTimeout, "no point was reached within the wait's time");
  }
  if (!others_raise)
    return failure(Code::kState, "all points are of timelines that this session raises itself");
  return interrupt_.spend(wait_in_slices(timeout, Interrupts::kEnd, [&](Instant until) {
    const Code code = completion_.wait_any(points, kSpins, until, connection_.clock(), index);
    return std::pair(code == Code::kWaitTimeout ? MUSTER_POINT_NONE : points[*index], code);
  }));
}

// `wait_until(instant)` returns a point and its code. The wait is cut into slices, between which it looks for
// a lost engine and for an interrupt. After an interrupt it tests the points once more, so that a wait whose
// point has been reached is not interrupted. A wait with timeout 0 never is.
template<class WaitUntil>
Status Waiting::wait_in_slices(Nanos timeout, Interrupts interrupts, WaitUntil wait_until) {
  const Instant begun = connection_.clock().now();
  const Instant deadline = later(begun, timeout.count() < 0 ? connection_.timeout() : timeout);
  const bool heeds = interrupts == Interrupts::kEnd && timeout.count() != 0;
  Instant loss_check = begun + kLossCheckPeriod;
  while (true) {
    const bool ends = heeds && interrupt_.raised();
    const Instant now = connection_.clock().now();
    const Instant slice = ends ? now : std::min(deadline, now + kInterruptCheckPeriod);
    const auto [point, code] = wait_until(slice);
    if (code != Code::kWaitTimeout) return outcome(point, code);
    if (ends)
      return Status(Code::kWaitInterrupted,
                    "the wait was interrupted (muster_interrupt); the operation goes on");
    const bool over = slice == deadline;
    if (!over && slice < loss_check) continue;
    if (const auto loss = connection_.engine_loss()) return *loss;
    if (over) return not_reached();
    loss_check = slice + kLossCheckPeriod;
  }
}

// Names the engine as the reason if it has not moved for long.
Status Waiting::not_reached() const {
  const Nanos silence = connection_.silence();
  if (silence < Connection::kLongSilence)
    return failure(Code::kWaitTimeout, "the point was not reached within the wait's time");
  return failure(Code::kWaitTimeout,
                 "the point was not reached within the wait's time, and the job's engine has not moved for "
                 "{:.1f} s: it is stopped or gets no core; see `muster hang{} --job {}`",
                 std::chrono::duration<double>(silence).count(), shm::endpoint_option(connection_.endpoint()),
                 connection_.welcome().job);
}

Result<int> Waiting::event_descriptor() {
  if (events_.valid()) return events_.get();
  auto answer = connection_.ask<shm::Plain>(shm::Plain{}, shm::MessageKind::kEventOpen,
                                            shm::MessageKind::kDone, {}, nullptr, &events_);
  if (!answer) return fail(answer.error());
  MUSTER_FAULT_POINT("event.opened");
  if (!events_.valid()) return fail(Code::kProtocol, "the daemon sent no event socket");
  return events_.get();
}

}  // namespace muster::client
