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

void LaneQueue::launch_next(std::uint32_t step) {
  Start& start = next();
  start.arrived = false;
  start.step = step;
  launched_collective_ = start.request.plan->collective() != nullptr;
  if (start.on_streams) launched_ = start.request.value;
  ++in_flight_;
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

std::uint64_t LaneQueue::stop(CausePtr cause) {
  MUSTER_ASSERT(!stopped());
  cause_ = std::move(cause);
  failed_from_ = has_next() ? next().request.value : last_ + 1;
  failed_to_ = 0;
  return failed_from_;
}

std::optional<std::uint64_t> LaneQueue::stop_at(std::uint64_t value, CausePtr cause) {
  if (failed_to_ != 0 && value >= failed_from_ && value <= failed_to_) {
    remember({value, value, std::move(cause)});
    return std::nullopt;
  }
  if (!stopped()) {
    cause_ = std::move(cause);
    failed_to_ = 0;
    failed_from_ = value;
  }
  failed_from_ = std::min(failed_from_, value);
  return failed_from_;
}

std::uint64_t LaneQueue::resume() {
  failed_to_ = last_;
  remember({failed_from_, failed_to_, cause_});
  noted_.clear();
  return failed_to_;
}

// Points of a failure stay failed after the reset. Beyond kFailuresKept the two oldest failures become one,
// which covers the points between them too. So a start that waits for such an old point may fail wrongly.
void LaneQueue::remember(Failed failed) {
  before_.push_back(std::move(failed));
  if (before_.size() <= kFailuresKept) return;
  before_[1].from = std::min(before_[0].from, before_[1].from);
  before_.erase(before_.begin());
}

const Cause* LaneQueue::failure_at(std::uint64_t value) const {
  if (stopped() && value >= failed_from_) return cause_.get();
  for (const Failed& failed : before_)
    if (value >= failed.from && value <= failed.to) return failed.cause.get();
  return nullptr;
}

void LaneQueue::note(const Place& place) {
  const bool known =
      std::any_of(noted_.begin(), noted_.end(), [&](const Place& other) { return other.same_as(place); });
  if (!known) noted_.push_back(place);
}

}  // namespace muster::scheduler
