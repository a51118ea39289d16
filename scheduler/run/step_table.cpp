#include "scheduler/run/step_table.hpp"

#include "api/base/assert.hpp"

#include <algorithm>
#include <string>
#include <utility>

#include <fmt/format.h>

namespace muster::scheduler {

void StepTable::add(std::uint32_t steps) {
  free_.reserve(steps_.size() + steps);
  for (std::uint32_t i = steps; i > 0; --i) free_.push_back(size() + i - 1);
  for (std::uint32_t i = 0; i < steps; ++i) {
    InFlight& step = steps_.emplace_back();
    step.step.parts.reserve(kNarrow);
    step.step.after.reserve(kNarrow * waits_);
    step.members.reserve(kNarrow);
  }
}

void StepTable::add(GroupId group, LaneId lane, std::size_t members) {
  if (members <= kNarrow) return;
  std::vector<std::vector<Room>>& rooms = rooms_[group.value];
  rooms.resize(std::max<std::size_t>(rooms.size(), lane.value + 1));
  if (!rooms[lane.value].empty()) return;
  Room& room = rooms[lane.value].emplace_back();
  room.parts.reserve(members);
  room.after.reserve(members * waits_);
  room.members.reserve(members);
}

std::vector<StepTable::Room>& StepTable::rooms_of(LaneId lane, const Plan& plan) {
  return rooms_[plan.collective()->group.value][lane.value];
}

StepTable::InFlight& StepTable::take(std::size_t members, LaneId lane, const Plan& plan,
                                     std::uint32_t* index) {
  MUSTER_ASSERT(!free_.empty());  // launch_depth bounds the steps of each lane
  *index = free_.back();
  free_.pop_back();
  InFlight& step = steps_[*index];
  step.used = true;
  step.deadline = Instant::max();
  step.left.reset();
  step.given_up = false;
  if (members > kNarrow) {
    std::vector<Room>& rooms = rooms_of(lane, plan);
    Room room;
    if (!rooms.empty()) {
      room = std::move(rooms.back());
      rooms.pop_back();
    }
    step.own = {std::exchange(step.step.parts, std::move(room.parts)),
                std::exchange(step.step.after, std::move(room.after)),
                std::exchange(step.members, std::move(room.members))};
  }
  step.step.parts.clear();
  step.step.after.clear();
  step.step.number = ++launched_;
  step.step.active = 0;
  step.members.clear();
  ++in_flight_;
  return step;
}

StepTable::InFlight& StepTable::at(std::uint32_t index) {
  MUSTER_ASSERT(index < steps_.size() && steps_[index].used);
  return steps_[index];
}

// The stream of the start's own lane keeps the order of that lane.
void StepTable::add_waits(Step& step, const RankLanes& rank, const LaneQueue::Start& start) {
  const auto part = static_cast<std::uint32_t>(step.parts.size());
  for (const std::uint64_t wait : start.request.waits) {
    const std::uint32_t timeline = shm::point_timeline(wait);
    if (wait == 0 || timeline >= shm::kClientTimelineFirst || timeline == start.request.lane) continue;
    if (const LaneQueue::Start* before = rank.lane(timeline).in_flight(shm::point_value(wait)))
      step.after.push_back({part, before->step, at(before->step).step.number});
  }
}

void StepTable::give_back(std::uint32_t index) {
  InFlight& step = at(index);
  if (step.step.parts.size() > kNarrow) {
    const Step::Part& first = step.step.parts.front();
    rooms_of(first.lane_id, *first.plan)
        .push_back({std::exchange(step.step.parts, std::move(step.own.parts)),
                    std::exchange(step.step.after, std::move(step.own.after)),
                    std::exchange(step.members, std::move(step.own.members))});
  }
  step.used = false;
  --in_flight_;
  free_.push_back(index);
}

void StepTable::forgive(Instant moment, Nanos lateness) {
  for (InFlight& step : steps_)
    if (step.used && step.since <= moment) step.deadline = later(step.deadline, lateness);
}

std::vector<std::uint32_t> StepTable::overdue(Instant now) const {
  std::vector<std::uint32_t> overdue;
  for (std::uint32_t i = 0; i < size() && in_flight_ > 0; ++i)
    if (steps_[i].used && !steps_[i].given_up && steps_[i].deadline <= now) overdue.push_back(i);
  return overdue;
}

bool StepTable::shares_lane(const InFlight& one, const InFlight& other) {
  for (std::size_t i = 0; i < one.step.parts.size(); ++i)
    for (std::size_t j = 0; j < other.step.parts.size(); ++j) {
      const Step::Part& a = one.step.parts[i];
      const Step::Part& b = other.step.parts[j];
      if (a.rank == b.rank && a.lane == b.lane && one.members[i].generation == other.members[j].generation)
        return true;
    }
  return false;
}

std::vector<std::uint32_t> StepTable::behind(std::uint32_t index) const {
  const InFlight& first = steps_[index];
  const std::uint64_t number = first.step.number;
  const auto waits = [&](const Step::After& after) { return after.step == index && after.number == number; };
  std::vector<std::uint32_t> behind;
  for (std::uint32_t i = 0; i < size(); ++i) {
    const InFlight& step = steps_[i];
    if (!step.used || step.given_up || step.step.number <= number) continue;
    if (std::any_of(step.step.after.begin(), step.step.after.end(), waits) || shares_lane(step, first))
      behind.push_back(i);
  }
  return behind;
}

std::optional<std::uint32_t> StepTable::latest(Rank rank, std::uint32_t lane) const {
  std::optional<std::uint32_t> latest;
  std::uint64_t value = 0;
  for (std::uint32_t i = 0; i < size(); ++i) {
    if (!steps_[i].used || steps_[i].step.parts.front().plan->collective() == nullptr) continue;
    for (const Step::Part& part : steps_[i].step.parts)
      if (part.rank == rank && part.lane == lane && part.value > value) {
        latest = i;
        value = part.value;
      }
  }
  return latest;
}

std::vector<StepTable::Member*> StepTable::of(const Start& start) {
  std::vector<Member*> members;
  for (InFlight& flight : steps_) {
    if (!flight.used) continue;
    for (std::size_t i = 0; i < flight.step.parts.size(); ++i) {
      const Step::Part& part = flight.step.parts[i];
      Member& member = flight.members[i];
      if (part.rank == start.rank && part.lane == start.lane && part.value == start.value &&
          member.generation == start.generation && !member.over)
        members.push_back(&member);
    }
  }
  return members;
}

std::vector<StepTable::Running> StepTable::running() const {
  std::vector<Running> running;
  for (const InFlight& flight : steps_)
    if (flight.used && flight.step.parts.front().plan->collective() != nullptr)
      running.push_back({&flight.step, flight.since});
  return running;
}

transport::PlaceKey key_of(const Place& place, std::span<const Group> groups, const LaneTable& lanes) {
  const std::uint64_t lane = place.is_pair() ? 0 : lanes.key(place.lane);
  return {groups[place.group.value].key, lane, place.sender, place.receiver};
}

Cause cause_of(const Step& step, std::span<const Group> groups, const LaneTable& lanes, const Status& why) {
  const Step::Part& first = step.parts.front();
  const CollectiveWork* const work = first.plan->collective();
  const bool as_it_is = is_group_failure(why.code()) || why.code() == Code::kInternal;
  const std::string place = work != nullptr ? fmt::format("group {}", groups[work->group.value].name)
                                            : fmt::format("rank {}", first.rank.value);
  const std::string site = work == nullptr || work->site.empty() ? "" : fmt::format(" ({})", work->site);
  return {as_it_is ? why.code() : Code::kDevice, why.culprit(),
          fmt::format("{}: {}{} on lane {} failed: {}", place, first.plan->label(), site,
                      lanes.label(first.lane_id), as_it_is ? why.message() : why.text())};
}

Cause as_known_here(Cause cause, const World& world) {
  if (cause.code == Code::kPeerLost && cause.culprit >= 0 &&
      world.is_local(Rank(static_cast<std::uint32_t>(cause.culprit))))
    cause.culprit = -1;
  return cause;
}

}  // namespace muster::scheduler
