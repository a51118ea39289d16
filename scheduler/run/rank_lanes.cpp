#include "scheduler/run/rank_lanes.hpp"

#include <algorithm>

#include <fmt/format.h>

namespace muster::scheduler {
namespace {

// Whether the start must still wait for that point of a lane.
bool waits_for(const LaneQueue::Start& start, const LaneQueue& other, std::uint64_t value) {
  return other.reached() < value && !(start.on_streams && other.launched() >= value);
}

}  // namespace

RankLanes::RankLanes(std::uint32_t first, std::uint32_t depth) : first_(first), depth_(depth) {
  for (std::uint32_t i = 0; i < first; ++i) lanes_.push_back({LaneQueue(depth), LaneTable::first_of(i), i});
}

void RankLanes::attached() {
  for (Lane& lane : lanes_) {
    lane.queue = LaneQueue(depth_);
    lane.load.quarantined = 0;
  }
  busy_ = 0;
  timelines_.fill(0);
  signalled_.fill(Instant{0});
  present_ = true;
  ++generation_;
  exposed_since_.reset();
  exposed_ = {};
}

void RankLanes::detached() {
  present_ = false;
  exposed_since_.reset();
}

std::optional<std::uint32_t> RankLanes::open(LaneId id, muster_lane lane_class) {
  for (std::uint32_t i = first_; i < lanes_.size(); ++i) {
    Lane& lane = lanes_[i];
    if (lane.open || lane.load.running > 0) continue;
    lane.id = id;
    lane.lane_class = lane_class;
    lane.open = true;
    return i;
  }
  if (lanes_.size() == shm::kLanesMax) return std::nullopt;
  lanes_.push_back({LaneQueue(depth_), id, lane_class});
  return lanes() - 1;
}

std::optional<std::uint32_t> RankLanes::find(LaneId id) const {
  for (std::uint32_t i = 0; i < lanes_.size(); ++i)
    if (lanes_[i].open && lanes_[i].id == id) return i;
  return std::nullopt;
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
  for (Lane& lane : lanes_)
    if (lane.queue.moved() <= moment) lane.queue.moved_at(lane.queue.moved() + lateness);
  for (Instant& signalled : signalled_)
    if (signalled <= moment) signalled += lateness;
}

// ---- obstacles of its starts -------------------------------------------------------------------

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
    const LaneQueue& other = lanes_[timeline].queue;
    if (const Cause* cause = other.failures().at(value)) {
      *failed = cause;
      return Ready::kFailed;
    }
    if (timeline == lane && value < start.request.value) continue;  // the lane's own order
    if (waits_for(start, other, value)) return Ready::kNo;
  }
  return Ready::kYes;
}

RankLanes::Obstacle RankLanes::obstacle(std::uint32_t lane, const LaneQueue::Start& start,
                                        const LaneTable& names) const {
  for (const std::uint64_t wait : start.request.waits) {
    if (wait == 0) continue;
    const std::uint32_t timeline = shm::point_timeline(wait);
    const std::uint64_t value = shm::point_value(wait);
    if (timeline >= shm::kClientTimelineFirst) {
      const std::uint64_t at = timelines_[timeline - shm::kClientTimelineFirst];
      if (at < value)
        return {fmt::format("client timeline {} to reach {} (it is at {})", timeline, value, at), {}};
    } else if (timeline != lane && waits_for(start, lanes_[timeline].queue, value)) {
      return {fmt::format("lane {} to reach {} (it is at {})", names.label(lanes_[timeline].id), value,
                          lanes_[timeline].queue.reached()),
              timeline};
    }
  }
  return {"work before it on its lane", {}};
}

std::optional<Instant> RankLanes::deadline(std::uint32_t lane) const {
  if (!present_ || !lanes_[lane].queue.has_next()) return std::nullopt;
  const std::optional<Instant> since = still_since(lane, 0);
  if (!since) return std::nullopt;
  return later(*since, lanes_[lane].queue.next().request.timeout);
}

// The latest moment at which something moved that the lane's next start waits for. Empty if a step runs there
// now that was not given up. `seen` has a bit for each lane that was visited, so that a circle of waits ends.
std::optional<Instant> RankLanes::still_since(std::uint32_t lane, std::uint64_t seen) const {
  const LaneQueue& queue = lanes_[lane].queue;
  if (lanes_[lane].load.running > lanes_[lane].load.given_up) return std::nullopt;
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
    } else if ((seen >> timeline & 1U) == 0 && waits_for(queue.next(), lanes_[timeline].queue, value)) {
      const std::optional<Instant> there = still_since(timeline, seen);
      if (!there) return std::nullopt;
      since = std::max(since, *there);
    }
  }
  return since;
}

void RankLanes::note_exposure(Instant now) {
  const LaneQueue& compute = lanes_[MUSTER_LANE_COMPUTE].queue;
  bool waits = false, waits_for_halo = false;
  if (present_ && compute.has_next() && !compute.any_launched()) {
    const LaneQueue::Start& next = compute.next();
    waits = next.request.plan->collective() != nullptr;
    for (const std::uint64_t wait : next.request.waits) {
      const std::uint32_t timeline = wait == 0 ? 0 : shm::point_timeline(wait);
      if (timeline == MUSTER_LANE_COMPUTE || timeline >= shm::kClientTimelineFirst) continue;
      if (!waits_for(next, lanes_[timeline].queue, shm::point_value(wait))) continue;
      waits = true;
      waits_for_halo = waits_for_halo || lanes_[timeline].lane_class == MUSTER_LANE_HALO;
    }
  }
  if (exposed_since_) {
    exposed_.all += now - *exposed_since_;
    if (waits_for_halo_) exposed_.to_halos += now - *exposed_since_;
  }
  exposed_since_ = waits ? std::optional(now) : std::nullopt;
  waits_for_halo_ = waits_for_halo;
}

}  // namespace muster::scheduler
