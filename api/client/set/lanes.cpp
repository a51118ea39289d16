#include "api/client/set/lanes.hpp"

#include "api/base/assert.hpp"
#include "api/client/session/shown_units.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <thread>

namespace muster::client {
namespace {

// Then the ring has been full for a minute, and the daemon takes nothing in.
constexpr int kNapsMax = 60'000;

// A lane is ordered, so its own points need no waits.
bool is_on(muster_point point, muster_lane lane) {
  return (point >> 48) == std::uint64_t{lane} + 1;
}

}  // namespace

SetLanes::SetLanes(muster_session* session, std::span<const muster_lane> classes)
    : session_(session), plans_(session) {
  for (const muster_lane lane : classes) lanes_.push_back({lane});
}

SetLanes::Opened& SetLanes::of_class(muster_lane lane) {
  const auto found = std::ranges::find(lanes_, lane, &Opened::lane_class);
  MUSTER_ASSERT(found != lanes_.end());
  return *found;
}

Status SetLanes::open(const std::string& name) {
  for (Opened& lane : lanes_)
    MUSTER_RETURN_IF_ERROR(
        status_of(muster_lane_create(session_, lane.lane_class, name.c_str(), &lane.number)));
  muster_collective barrier = MUSTER_COLLECTIVE_INIT;
  barrier.op = MUSTER_BARRIER;
  barrier.group = MUSTER_GROUP_SELF;
  return status_of(muster_plan_collective(session_, &barrier, &join_));
}

Status SetLanes::close() {
  for (Opened& lane : lanes_) {
    if (lane.number == MUSTER_LANE_NONE) continue;
    MUSTER_RETURN_IF_ERROR(
        status_of(repeat_while_busy([&] { return muster_lane_destroy(session_, lane.number); })));
    lane.number = MUSTER_LANE_NONE;
  }
  if (join_ != 0)
    MUSTER_RETURN_IF_ERROR(
        status_of(repeat_while_busy([&] { return muster_plan_destroy(session_, join_); })));
  join_ = 0;
  unfinished_.clear();
  barriers_.clear();
  return plans_.release();
}

// Repeats a call while the ring is full.
template<class Call>
Status SetLanes::with_room(Call&& call) {
  muster_status_t code = call();
  for (int naps = 0; code == MUSTER_ERR_BUSY && naps < kNapsMax; ++naps) {
    MUSTER_RETURN_IF_ERROR(make_room());
    code = call();
  }
  return status_of(code);
}

Status SetLanes::mark_step(std::uint64_t step) {
  return with_room([&] { return client::mark_step(session_, step); });
}

Result<muster_point> SetLanes::start(muster_plan plan, muster_lane lane,
                                     std::span<const muster_point> waits) {
  Opened& opened = of_class(lane);
  auto point = start_after(plan, opened.number, waits);
  if (point) opened.latest = *point;
  return point;
}

Result<muster_point> SetLanes::start_on(muster_plan plan, muster_lane number,
                                        std::span<const muster_point> waits) {
  auto point = start_after(plan, number, waits);
  if (point) latest_elsewhere_[number] = *point;
  return point;
}

// Any number of waits.
Result<muster_point> SetLanes::start_after(muster_plan plan, muster_lane number,
                                           std::span<const muster_point> waits) {
  std::array<muster_point, MUSTER_WAITS_MAX> others{};
  std::size_t count = 0;
  for (const muster_point wait : waits) {
    if (wait == MUSTER_POINT_NONE || is_on(wait, number)) continue;
    if (count == others.size()) {
      if (auto joined = start_one(join_, number, others); !joined) return joined;
      count = 0;
    }
    others[count++] = wait;
  }
  return start_one(plan, number, std::span(others).first(count));
}

Result<muster_point> SetLanes::join(muster_lane lane, std::span<const muster_point> waits) {
  if (waits.empty()) return MUSTER_POINT_NONE;
  if (waits.size() == 1) return waits.front();
  return start(join_, lane, waits);
}

// The plan stays for the next time: an operation that a wait was interrupted in may still use it.
Result<muster_point> SetLanes::barrier(muster_lane lane, muster_group group,
                                       std::span<const muster_point> waits) {
  auto known = barriers_.find(group);
  if (known == barriers_.end()) {
    muster_collective barrier = MUSTER_COLLECTIVE_INIT;
    barrier.op = MUSTER_BARRIER;
    barrier.group = group;
    MUSTER_ASSIGN_OR_RETURN(const muster_plan plan, plans_.plan(barrier));
    known = barriers_.emplace(group, plan).first;
  }
  return start(known->second, lane, waits);
}

Result<muster_point> SetLanes::start_one(muster_plan plan, muster_lane number,
                                         std::span<const muster_point> waits) {
  muster_submit submit = MUSTER_SUBMIT_INIT;
  submit.lane = number;
  submit.wait_count = static_cast<std::uint32_t>(waits.size());
  std::ranges::copy(waits, submit.waits);
  muster_point point = MUSTER_POINT_NONE;
  MUSTER_RETURN_IF_ERROR(with_room([&] { return muster_plan_start(session_, plan, &submit, &point); }));
  if (recent_count_ == kRecentMax) take_oldest();
  recent_[(recent_first_ + recent_count_++) % kRecentMax] = point;
  return point;
}

muster_point SetLanes::take_oldest() {
  const muster_point oldest = recent_[recent_first_];
  recent_first_ = (recent_first_ + 1) % kRecentMax;
  --recent_count_;
  return oldest;
}

// Waits for a point, whatever its outcome. Errors: those of the wait itself.
Status SetLanes::wait(muster_point point, Status& outcome) {
  outcome = status_of(muster_point_wait(session_, point, -1));
  const Code code = outcome.code();
  if (is_session_end(code) || code == Code::kWaitTimeout || code == Code::kWaitInterrupted) return outcome;
  return {};
}

// The starts that fill the ring may be the caller's own. Then the daemon takes them in soon.
Status SetLanes::make_room() {
  if (recent_count_ == 0) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return {};
  }
  Status outcome;  // points that wait for a failed one report that
  return wait(take_oldest(), outcome);
}

Status SetLanes::reset() {
  Status lost;
  MUSTER_RETURN_IF_ERROR(drain());
  for (const Opened& lane : lanes_) {
    if (lane.number == MUSTER_LANE_NONE) continue;
    muster_failure failure = MUSTER_FAILURE_INIT;
    if (muster_lane_failure(session_, lane.number, &failure) == MUSTER_OK &&
        failure.status == MUSTER_ERR_PEER_LOST)
      lost = Status(Code::kPeerLost, failure.text, failure.culprit_rank);
    MUSTER_RETURN_IF_ERROR(status_of(muster_lane_reset(session_, lane.number)));
  }
  for (const auto& [lane, latest] : latest_elsewhere_)
    MUSTER_RETURN_IF_ERROR(status_of(muster_lane_reset(session_, lane)));
  recent_first_ = recent_count_ = 0;
  return lost;
}

Status SetLanes::meet(muster_lane lane, muster_group group) {
  constexpr int kCausesMax = 32;  // more than a group keeps
  Status outcome;
  for (int i = 0; i < kCausesMax; ++i) {
    // One that a wait was interrupted in stands for this rank already: another would find no partner.
    muster_point& met = unfinished_[{lane, group}];
    if (met == MUSTER_POINT_NONE) {
      MUSTER_ASSIGN_OR_RETURN(met, barrier(lane, group, {}));
    }
    MUSTER_RETURN_IF_ERROR(wait(met, outcome));
    met = MUSTER_POINT_NONE;
    if (outcome.ok()) break;
    MUSTER_RETURN_IF_ERROR(status_of(muster_lane_reset(session_, of_class(lane).number)));
    if (outcome.code() == Code::kPeerLost) break;
  }
  return outcome;
}

// A lane that stops gives its latest points an outcome while an earlier start still runs.
Status SetLanes::drain() {
  Status outcome;
  for (std::size_t i = 0; i < recent_count_; ++i)
    MUSTER_RETURN_IF_ERROR(wait(recent_[(recent_first_ + i) % kRecentMax], outcome));
  for (const Opened& lane : lanes_)
    if (lane.latest != MUSTER_POINT_NONE) MUSTER_RETURN_IF_ERROR(wait(lane.latest, outcome));
  for (const auto& [lane, latest] : latest_elsewhere_) MUSTER_RETURN_IF_ERROR(wait(latest, outcome));
  return {};
}

}  // namespace muster::client
