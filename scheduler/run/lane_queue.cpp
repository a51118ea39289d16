#include "scheduler/run/lane_queue.hpp"

#include "api/base/assert.hpp"

#include <algorithm>
#include <utility>

namespace muster::scheduler {

void LaneQueue::push(Start start, Instant now) {
  const bool pushed = queue_.push(start);
  MUSTER_ASSERT(pushed);
  if (waiting() == 1) moved_ = now;
}

LaneQueue::Start LaneQueue::take_newest() {
  MUSTER_ASSERT(has_next());
  Start newest = queue_.back();
  queue_.pop_back();
  return newest;
}

void LaneQueue::launch_next(std::uint32_t step, bool whole) {
  Start& start = next();
  start.arrived = !whole;
  start.step = step;
  ++start.pieces;
  if (!whole) return;
  launched_collective_ = start.request.plan->collective() != nullptr;
  // Another start can be launched behind one step alone.
  start.on_streams = start.on_streams && start.pieces == 1;
  if (start.on_streams) launched_ = start.request.value;
  ++in_flight_;
}

bool LaneQueue::end_piece(std::uint64_t value) {
  MUSTER_ASSERT(is_oldest(value) && queue_.front().pieces > 0);
  return --queue_.front().pieces == 0 && in_flight_ > 0;
}

const LaneQueue::Start* LaneQueue::in_flight(std::uint64_t value) const {
  for (std::uint32_t i = 0; i < in_flight_; ++i)
    if (queue_[i].request.value == value) return &queue_[i];
  return nullptr;
}

void LaneQueue::finish(std::uint64_t value, bool well) {
  MUSTER_ASSERT(in_flight_ > 0 && queue_.front().request.value == value);
  queue_.pop();
  --in_flight_;
  launched_collective_ = false;
  if (well) reached_ = value;
}

std::optional<std::uint64_t> LaneQueue::stop(const CausePtr& cause, std::optional<std::uint64_t> failed) {
  if (failed)
    if (const auto from = failures_.stop_at(*failed, cause)) return from;
  if (failures_.stopped()) return std::nullopt;
  const std::uint64_t from = has_next() ? next().request.value : last_ + 1;
  failures_.stop(from, cause);
  return from;
}

// ---- failures ----------------------------------------------------------------------------------

void LaneQueue::Failures::stop(std::uint64_t value, CausePtr cause) {
  cause_ = std::move(cause);
  from_ = value;
  to_ = 0;
}

std::optional<std::uint64_t> LaneQueue::Failures::stop_at(std::uint64_t value, CausePtr cause) {
  if (to_ != 0 && value >= from_ && value <= to_) {
    remember({value, value, std::move(cause)});
    return std::nullopt;
  }
  if (!stopped()) stop(value, std::move(cause));
  from_ = std::min(from_, value);
  return from_;
}

std::uint64_t LaneQueue::Failures::resume(std::uint64_t last) {
  to_ = last;
  remember({from_, to_, cause_});
  noted_.clear();
  return to_;
}

// Points of a failure stay failed after the reset. Beyond kKept the two oldest failures become one, which
// covers the points between them too. So a start that waits for such an old point may fail wrongly.
void LaneQueue::Failures::remember(Past past) {
  before_.push_back(std::move(past));
  if (before_.size() <= kKept) return;
  before_[1].from = std::min(before_[0].from, before_[1].from);
  before_.erase(before_.begin());
}

const Cause* LaneQueue::Failures::at(std::uint64_t value) const {
  if (stopped() && value >= from_) return cause_.get();
  for (const Past& past : before_)
    if (value >= past.from && value <= past.to) return past.cause.get();
  return nullptr;
}

void LaneQueue::Failures::note(const Place& place) {
  const auto same = [&](const Place& other) { return other.same_as(place); };
  if (std::none_of(noted_.begin(), noted_.end(), same)) noted_.push_back(place);
}

}  // namespace muster::scheduler
