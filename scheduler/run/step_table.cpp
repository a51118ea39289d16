#include "scheduler/run/step_table.hpp"

#include "api/base/assert.hpp"

#include <string>

#include <fmt/format.h>

namespace muster::scheduler {

StepTable::StepTable(std::uint32_t steps, std::uint32_t lanes, std::span<const Group> groups)
    : lanes_(lanes), steps_(steps), rooms_(groups.size() * lanes) {
  free_.reserve(steps);
  for (std::uint32_t i = steps; i > 0; --i) free_.push_back(i - 1);
  for (InFlight& step : steps_) {
    step.step.parts.reserve(kNarrow);
    step.generations.reserve(kNarrow);
  }
  for (std::uint32_t g = 0; g < groups.size(); ++g) set_group(GroupId(g), groups[g].ranks.size());
}

void StepTable::set_group(GroupId group, std::size_t members) {
  for (std::uint32_t lane = 0; lane < lanes_; ++lane) {
    Room& room = rooms_[group.value * lanes_ + lane];
    room = Room{};
    if (members <= kNarrow) continue;
    room.parts.reserve(members);
    room.generations.reserve(members);
  }
}

StepTable::Room* StepTable::room_of(std::size_t members, std::uint32_t lane, const Plan& plan) {
  if (members <= kNarrow) return nullptr;
  return &rooms_[plan.collective()->group.value * lanes_ + lane];
}

// Swaps the vectors of the step and the room: take() lends the room, give_back() returns it.
void StepTable::exchange(InFlight& step, Room* room) {
  if (room == nullptr) return;
  step.step.parts.swap(room->parts);
  step.generations.swap(room->generations);
}

StepTable::InFlight& StepTable::take(std::size_t members, std::uint32_t lane, const Plan& plan,
                                     std::uint32_t* index) {
  MUSTER_ASSERT(!free_.empty());  // launch_depth bounds the steps of each lane
  *index = free_.back();
  free_.pop_back();
  InFlight& step = steps_[*index];
  step.used = true;
  exchange(step, room_of(members, lane, plan));
  step.step.parts.clear();
  step.generations.clear();
  ++in_flight_;
  return step;
}

StepTable::InFlight& StepTable::at(std::uint32_t index) {
  MUSTER_ASSERT(index < steps_.size() && steps_[index].used);
  return steps_[index];
}

void StepTable::give_back(std::uint32_t index) {
  InFlight& step = at(index);
  const Step::Part& first = step.step.parts.front();
  exchange(step, room_of(step.step.parts.size(), first.lane, *first.plan));
  step.used = false;
  --in_flight_;
  free_.push_back(index);
}

std::vector<StepTable::Running> StepTable::running() const {
  std::vector<Running> running;
  for (const InFlight& flight : steps_)
    if (flight.used && flight.step.parts.front().plan->collective() != nullptr)
      running.push_back({&flight.step, flight.since});
  return running;
}

Cause cause_of(const Step& step, std::span<const Group> groups, const Status& why) {
  const Step::Part& first = step.parts.front();
  const CollectiveWork* const work = first.plan->collective();
  const bool as_it_is = is_group_failure(why.code()) || why.code() == Code::kInternal;
  const std::string place = work != nullptr ? fmt::format("group {}", groups[work->group.value].name)
                                            : fmt::format("rank {}", first.rank.value);
  return {as_it_is ? why.code() : Code::kDevice, why.culprit(),
          fmt::format("{}: {} on lane {} failed: {}", place, first.plan->label(), lane_name(first.lane),
                      as_it_is ? why.message() : why.text())};
}

}  // namespace muster::scheduler
