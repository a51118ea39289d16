#include "scheduler/run/rank_lanes.hpp"

#include <algorithm>

#include <fmt/format.h>

namespace muster::scheduler {

RankLanes::RankLanes(std::uint32_t lanes, std::uint32_t depth) : depth_(depth), running_(lanes) {
  for (std::uint32_t i = 0; i < lanes; ++i) queues_.emplace_back(depth);
}

void RankLanes::attached() {
  for (LaneQueue& lane : queues_) lane = LaneQueue(depth_);
  timelines_.fill(0);
  signalled_.fill(Instant{0});
  present_ = true;
  ++generation_;
  exposed_since_.reset();
  exposed_ = Nanos{0};
}

void RankLanes::detached() {
  present_ = false;
  exposed_since_.reset();
}

Code RankLanes::signal(std::uint32_t timeline, std::uint64_t value, Instant now) {
  if (timeline < shm::kClientTimelineFirst || timeline >= shm::kTimelinesMax) return Code::kBadArgument;
  const std::size_t index = timeline - shm::kClientTimelineFirst;
  if (value < timelines_[index]) return Code::kBadArgument;
  if (value > timelines_[index]) signalled_[index] = now;
  timelines_[index] = value;
  return Code::kOk;
}

void RankLanes::forgive(Instant moment, Nanos lateness) {
  for (LaneQueue& lane : queues_)
    if (lane.moved() <= moment) lane.moved_at(lane.moved() + lateness);
  for (Instant& signalled : signalled_)
    if (signalled <= moment) signalled += lateness;
}

bool RankLanes::has_submitted(std::uint32_t lane, GroupId group) const {
  for (std::size_t i = 0; i < queues_[lane].waiting(); ++i) {
    const CollectiveWork* work = queues_[lane].waiting(i).request.plan->collective();
    if (work != nullptr && work->group == group) return true;
  }
  return false;
}

CausePtr RankLanes::first_failure() const {
  CausePtr first;
  for (const LaneQueue& lane : queues_)
    if (lane.stopped() && (first == nullptr || lane.cause()->fault < first->fault)) first = lane.cause();
  return first;
}

// ---- what its starts wait for ------------------------------------------------------------------

RankLanes::Ready RankLanes::readiness(std::uint32_t lane, const LaneQueue::Start& start,
                                      const Cause** failed) const {
  for (const std::uint64_t wait : start.request.waits) {
    if (wait == 0) continue;
    const std::uint32_t timeline = shm::point_timeline(wait);
    const std::uint64_t value = shm::point_value(wait);
    if (timeline >= shm::kClientTimelineFirst) {
      if (timelines_[timeline - shm::kClientTimelineFirst] < value) return Ready::kNo;
      continue;
    }
    const LaneQueue& other = queues_[timeline];
    if (const Cause* cause = other.failure_at(value)) {
      *failed = cause;
      return Ready::kFailed;
    }
    if (timeline == lane && value < start.request.value) continue;  // the lane's own order
    if (other.reached() < value) return Ready::kNo;
  }
  return Ready::kYes;
}

RankLanes::Obstacle RankLanes::obstacle(std::uint32_t lane, const LaneQueue::Start& start) const {
  for (const std::uint64_t wait : start.request.waits) {
    if (wait == 0) continue;
    const std::uint32_t timeline = shm::point_timeline(wait);
    const std::uint64_t value = shm::point_value(wait);
    if (timeline >= shm::kClientTimelineFirst) {
      const std::uint64_t at = timelines_[timeline - shm::kClientTimelineFirst];
      if (at < value)
        return {fmt::format("client timeline {} to reach {} (it is at {})", timeline, value, at), {}};
    } else if (timeline != lane && queues_[timeline].reached() < value) {
      return {fmt::format("lane {} to reach {} (it is at {})", lane_name(timeline), value,
                          queues_[timeline].reached()),
              timeline};
    }
  }
  return {"work before it on its lane", {}};
}

std::optional<Instant> RankLanes::deadline(std::uint32_t lane) const {
  if (!present_ || !queues_[lane].has_next()) return std::nullopt;
  const std::optional<Instant> since = still_since(lane, 0);
  if (!since) return std::nullopt;
  return later(*since, queues_[lane].next().request.timeout);
}

// The latest moment at which something moved that the lane's next start waits for. Empty if a step runs there
// now. `seen` has a bit for each lane that was visited, so that a circle of waits ends.
std::optional<Instant> RankLanes::still_since(std::uint32_t lane, std::uint64_t seen) const {
  const LaneQueue& queue = queues_[lane];
  if (running_[lane] > 0) return std::nullopt;
  Instant since = queue.moved();
  if (!queue.has_next() || queue.next().arrived) return since;
  seen |= std::uint64_t{1} << lane;
  for (const std::uint64_t wait : queue.next().request.waits) {
    if (wait == 0) continue;
    const std::uint32_t timeline = shm::point_timeline(wait);
    const std::uint64_t value = shm::point_value(wait);
    if (timeline >= shm::kClientTimelineFirst) {
      const std::size_t index = timeline - shm::kClientTimelineFirst;
      if (timelines_[index] < value) since = std::max(since, signalled_[index]);
    } else if ((seen >> timeline & 1U) == 0 && queues_[timeline].reached() < value) {
      const std::optional<Instant> there = still_since(timeline, seen);
      if (!there) return std::nullopt;
      since = std::max(since, *there);
    }
  }
  return since;
}

void RankLanes::note_exposure(Instant now) {
  const LaneQueue& compute = queues_[MUSTER_LANE_COMPUTE];
  bool waits = false;
  if (present_ && compute.has_next() && !compute.any_launched()) {
    const LaneQueue::Start& next = compute.next();
    waits = next.request.plan->collective() != nullptr;
    for (const std::uint64_t wait : next.request.waits) {
      const std::uint32_t timeline = wait == 0 ? 0 : shm::point_timeline(wait);
      if (timeline == MUSTER_LANE_COMPUTE || timeline >= lanes()) continue;
      waits = waits || queues_[timeline].reached() < shm::point_value(wait);
    }
  }
  if (waits == exposed_since_.has_value()) return;
  if (waits) {
    exposed_since_ = now;
  } else {
    exposed_ += now - *exposed_since_;
    exposed_since_.reset();
  }
}

}  // namespace muster::scheduler
