#include "api/client/check/starts_in_flight.hpp"

#include <algorithm>
#include <utility>

namespace muster::client {
namespace {

bool is_of_lane(muster_point point) {
  return point != MUSTER_POINT_NONE && shm::point_timeline(point) < shm::kLanesMax;
}

void add_points(std::vector<muster_point>& all, std::span<const muster_point> more) {
  for (const muster_point point : more)
    if (std::ranges::find(all, point) == all.end()) all.push_back(point);
}

std::optional<StartsInFlight::Race> race_between(const StartsInFlight::Started& earlier,
                                                 const MemoryUses& uses) {
  for (const MemoryUse& its : *earlier.uses)
    for (const MemoryUse& mine : uses)
      if ((its.writes || mine.writes) && meet(its, mine)) return StartsInFlight::Race{&earlier, its, mine};
  return std::nullopt;
}

}  // namespace

void StartsInFlight::Ended::add(const StartsInFlight::Ended& others) {
  for (std::size_t lane = 0; lane < of_lane.size(); ++lane)
    of_lane[lane] = std::max(of_lane[lane], others.of_lane[lane]);
}

void StartsInFlight::Ended::add(muster_point point) {
  std::uint64_t& ended = of_lane[shm::point_timeline(point)];
  ended = std::max(ended, shm::point_value(point));
}

bool StartsInFlight::is_raised(muster_point point) const {
  return raised_[shm::point_timeline(point) - shm::kClientTimelineFirst] >= shm::point_value(point);
}

// The starts that have ended, and the points that must be raised, before the start begins.
StartsInFlight::Lane StartsInFlight::before(const Next& next) const {
  Lane result = next.lane < lanes_.size() ? lanes_[next.lane] : Lane();
  result.ended.add(seen_);
  for (const muster_point wait : next.waits) {
    if (wait == MUSTER_POINT_NONE) continue;
    if (!is_of_lane(wait)) {
      if (!is_raised(wait)) add_points(result.open, {&wait, 1});
      continue;
    }
    result.ended.add(wait);
    for (const Started& start : starts_)
      if (shm::point_timeline(start.point) == shm::point_timeline(wait) && start.point <= wait) {
        result.ended.add(start.before);
        add_points(result.open, start.open);
      }
  }
  return result;
}

std::optional<StartsInFlight::Race> StartsInFlight::race_of(const Next& next) const {
  if (next.uses->empty()) return std::nullopt;
  const Lane begins = before(next);
  if (!begins.open.empty()) return std::nullopt;
  for (auto start = starts_.rbegin(); start != starts_.rend(); ++start)
    if (start->open.empty() && !begins.ended.have(start->point))
      if (auto race = race_between(*start, *next.uses)) return race;
  return std::nullopt;
}

std::optional<StartsInFlight::Race> StartsInFlight::race_of(const MemoryUses& uses) const {
  for (auto start = starts_.rbegin(); start != starts_.rend(); ++start)
    if (start->open.empty())
      if (auto race = race_between(*start, uses)) return race;
  return std::nullopt;
}

void StartsInFlight::add(const Next& next, muster_point point) {
  Lane begins = before(next);
  starts_.push_back({point, next.name, next.uses, begins.ended, begins.open});
  begins.ended.add(point);
  lanes_[next.lane] = std::move(begins);
}

std::vector<StartsInFlight::Started> StartsInFlight::forget_oldest() {
  std::vector<Started> forgotten;
  for (; starts_.size() > kRememberedMax; starts_.pop_front())
    forgotten.push_back(std::move(starts_.front()));
  return forgotten;
}

std::vector<StartsInFlight::Started> StartsInFlight::reach(muster_point point) {
  if (!is_of_lane(point) || seen_.have(point)) return {};
  for (const Started& start : starts_)
    if (shm::point_timeline(start.point) == shm::point_timeline(point) && start.point <= point)
      seen_.add(start.before);
  seen_.add(point);
  return take_ended();
}

std::vector<StartsInFlight::Started> StartsInFlight::fail(muster_point point) {
  if (!is_of_lane(point)) return {};
  seen_.add(point);
  const std::uint32_t number = shm::point_timeline(point);
  Lane begins;  // a lane keeps its order
  begins.ended.of_lane[number] = std::max(lanes_[number].ended.of_lane[number], shm::point_value(point));
  lanes_[number] = std::move(begins);
  return take_ended();
}

std::vector<StartsInFlight::Started> StartsInFlight::take_ended() {
  std::vector<Started> ended;
  std::deque<Started> left;
  for (Started& start : starts_)
    if (seen_.have(start.point))
      ended.push_back(std::move(start));
    else
      left.push_back(std::move(start));
  starts_ = std::move(left);
  return ended;
}

// A start that waits for the signal comes after all that the process has seen end before it raises the
// signal.
void StartsInFlight::resolve(Lane& lane, std::uint32_t timeline, std::uint64_t value) const {
  const auto is_met = [&](muster_point point) {
    return shm::point_timeline(point) == timeline && shm::point_value(point) <= value;
  };
  if (std::erase_if(lane.open, is_met) > 0) lane.ended.add(seen_);
}

std::optional<StartsInFlight::LateRace> StartsInFlight::race_by_signal(std::uint32_t timeline,
                                                                       std::uint64_t value) const {
  std::vector<Lane> then;
  then.reserve(starts_.size());
  for (const Started& start : starts_) {
    then.push_back({start.before, start.open});
    resolve(then.back(), timeline, value);
  }
  for (std::size_t i = 0; i < starts_.size(); ++i) {
    if (starts_[i].open.empty() || !then[i].open.empty()) continue;
    for (std::size_t k = 0; k < starts_.size(); ++k) {
      if (k == i || !then[k].open.empty()) continue;
      if (then[i].ended.have(starts_[k].point) || then[k].ended.have(starts_[i].point)) continue;
      if (const auto race = race_between(starts_[k], *starts_[i].uses)) return LateRace{&starts_[i], *race};
    }
  }
  return std::nullopt;
}

std::vector<const StartsInFlight::Started*> StartsInFlight::signal(std::uint32_t timeline,
                                                                   std::uint64_t value) {
  std::vector<const Started*> closed;
  std::uint64_t& raised = raised_[timeline - shm::kClientTimelineFirst];
  raised = std::max(raised, value);
  for (Lane& lane : lanes_) resolve(lane, timeline, value);
  for (Started& start : starts_) {
    const bool was_open = !start.open.empty();
    Lane begins{start.before, std::move(start.open)};
    resolve(begins, timeline, value);
    if (begins.open.empty() && was_open) closed.push_back(&start);
    start.before = begins.ended;
    start.open = std::move(begins.open);
  }
  return closed;
}

bool StartsInFlight::is_open(muster_point point) const {
  return std::ranges::any_of(starts_, [&](const Started& start) {
    return shm::point_timeline(start.point) == shm::point_timeline(point) && start.point <= point &&
           !start.open.empty();
  });
}

StartsInFlight::Mark StartsInFlight::mark() const {
  return {starts_.size(), lanes_};
}

void StartsInFlight::back_to(Mark mark) {
  starts_.resize(mark.starts);
  lanes_ = std::move(mark.lanes);
}

void StartsInFlight::forget(const std::byte* from, const std::byte* to) {
  std::erase_if(starts_, [&](const Started& start) {
    return std::ranges::any_of(*start.uses,
                               [&](const MemoryUse& use) { return use.from < to && from < use.to; });
  });
}

}  // namespace muster::client
