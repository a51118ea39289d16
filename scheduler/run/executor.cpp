#include "scheduler/run/executor.hpp"

#include "api/base/assert.hpp"
#include "kernels/table.hpp"

#include <algorithm>
#include <utility>

namespace muster::scheduler {

device::Priority priority_of(muster_lane lane_class) noexcept {
  switch (lane_class) {
    case MUSTER_LANE_HALO:
    case MUSTER_LANE_SMALL:
      return device::Priority::kUrgent;
    case MUSTER_LANE_GATHER:
    case MUSTER_LANE_REDUCE:
      return device::Priority::kHigh;
    case MUSTER_LANE_ALLREDUCE:
    case MUSTER_LANE_COMPUTE:
      return device::Priority::kNormal;
    default:
      return device::Priority::kLow;
  }
}

Result<Executor> Executor::open(const Options& options,
                                std::vector<std::unique_ptr<transport::Communicator>> communicators) {
  Executor executor(options);
  executor.communicators_ = std::move(communicators);
  executor.members_.reserve(options.devices.size());
  for (const Rank rank : options.devices.world().locals()) {
    executor.lanes_[rank].reserve(shm::kLanesMax);
    for (std::uint32_t lane = 0; lane < options.lanes; ++lane)
      MUSTER_RETURN_IF_ERROR(executor.open_lane(rank, lane, lane));
  }
  return executor;
}

Status Executor::open_lane(Rank rank, std::uint32_t number, muster_lane lane_class) {
  device::Device& device = *devices_[rank];
  std::vector<Lane>& lanes = lanes_[rank];
  MUSTER_ASSERT(number <= lanes.size() && number < shm::kLanesMax);
  if (number < lanes.size()) lanes[number] = Lane();  // the stream of an earlier client's lane
  Lane lane;
  lane.priority = priority_of(lane_class);
  MUSTER_ASSIGN_OR_RETURN(lane.stream, device.open_stream(lane.priority));
  lane.ends.resize(launch_depth_);
  for (auto& end : lane.ends) {
    MUSTER_ASSIGN_OR_RETURN(end, device.create_event());
  }
  if (number < lanes.size()) {
    lanes[number] = std::move(lane);
    return {};
  }
  lanes.push_back(std::move(lane));
  slots_.resize(slots_.size() + launch_depth_);
  in_flight_.reserve(slots_.size());
  finished_.reserve(slots_.size());
  return {};
}

// A step that was launched only in part ends like any other, because that part may run.
Status Executor::launch(std::uint32_t step_index, const Step& step) {
  MUSTER_ASSERT(step_index < slots_.size() && !step.parts.empty());
  Slot& slot = slots_[step_index];
  Lane& lane = lane_of(step.parts.front());
  slot.number = step.number;
  slot.after = step.after;
  slot.lane = &lane;
  slot.end = nullptr;
  slot.communicator = nullptr;
  if (const CollectiveWork* work = step.parts.front().plan->collective())
    slot.communicator = communicators_[work->group.value].get();
  slot.outcome.renew();
  if (Status launched = enqueue(*lane.stream, slot.outcome, step); !launched.ok()) {
    for (const Step::Part& part : step.parts) MUSTER_RETURN_IF_ERROR(lane_of(part).stream->health());
    slot.outcome.fail(std::move(launched));
  }
  device::Event& end = *lane.ends[lane.launched++ % lane.ends.size()];
  MUSTER_RETURN_IF_ERROR(lane.stream->record(end));
  slot.end = &end;
  in_flight_.push_back(step_index);
  return {};
}

// Two steps of one lane may both end after the query of the first and before the query of the second. So
// steps behind an unfinished one wait for the next poll, which keeps a lane's steps in order. A step is told
// in a later poll too while one that it was launched behind is not told.
void Executor::collect() {
  ++polls_;
  finished_.clear();
  std::size_t kept = 0;
  for (const std::uint32_t index : in_flight_) {
    Slot& slot = slots_[index];
    Lane& lane = *slot.lane;
    if (lane.unfinished_at != polls_ && slot.end->query() && slot.outcome.over() && !waits(slot)) {
      slot.number = 0;
      const Instant end = std::max(slot.end->reached_at(), slot.outcome.released_at());
      finished_.push_back({index, slot.end->began_at(), end, slot.outcome.failure()});
      continue;
    }
    lane.unfinished_at = polls_;
    in_flight_[kept++] = index;
  }
  in_flight_.resize(kept);
}

bool Executor::waits(const Slot& slot) const {
  return std::any_of(slot.after.begin(), slot.after.end(),
                     [this](const Step::After& after) { return slots_[after.step].number == after.number; });
}

bool Executor::is_outside(std::uint32_t step_index) const {
  const Slot& slot = slots_[step_index];
  return slot.end->query() && !slot.outcome.over();
}

std::vector<std::uint32_t> Executor::awaited(std::uint32_t step_index) const {
  const Slot& slot = slots_[step_index];
  return slot.communicator != nullptr ? slot.communicator->awaited(slot.outcome)
                                      : std::vector<std::uint32_t>();
}

std::optional<Instant> Executor::moved_at(std::uint32_t step_index) const {
  const Slot& slot = slots_[step_index];
  return slot.communicator != nullptr ? slot.communicator->moved_at(slot.outcome) : std::nullopt;
}

void Executor::cancel(std::uint32_t step_index) {
  Slot& slot = slots_[step_index];
  MUSTER_ASSERT(slot.communicator != nullptr);
  slot.communicator->cancel(slot.outcome);
}

// The health of a device is the same from all its streams, so one stream per rank is asked.
Status Executor::health() const {
  if (idle()) return {};
  for (const std::vector<Lane>& lanes : lanes_) MUSTER_RETURN_IF_ERROR(lanes.front().stream->health());
  return {};
}

// A communicator may run all its members' work on the first one's stream.
Status Executor::await(device::Stream& stream, const Step& step) {
  for (const Step::After& after : step.after) {
    const device::Event* const end = slots_[after.step].end;
    if (end == nullptr) continue;  // its device broke when it was launched
    MUSTER_RETURN_IF_ERROR(stream.wait(*end));
    if (after.part > 0) MUSTER_RETURN_IF_ERROR(lane_of(step.parts[after.part]).stream->wait(*end));
  }
  return {};
}

Status Executor::enqueue(device::Stream& stream, transport::StepOutcome& outcome, const Step& step) {
  if (!step.after.empty()) MUSTER_RETURN_IF_ERROR(await(stream, step));
  Plan& plan = *step.parts.front().plan;
  if (const KernelWork* work = plan.kernel()) return kernels::launch(stream, *work->kernel, work->args);
  members_.clear();
  for (const Step::Part& part : step.parts)
    members_.push_back({&part.plan->collective()->share, lane_of(part).stream.get(), part.bases,
                        &part.plan->collective()->signature,
                        step.active > 0 && members_.size() >= step.active});
  const CollectiveWork& work = *plan.collective();
  transport::Communicator& communicator = *communicators_[work.group.value];
  const device::Priority priority = lane_of(step.parts.front()).priority;
  if (!communicator.keeps_prepared()) {
    MUSTER_ASSIGN_OR_RETURN(const auto prepared, communicator.prepare(work.collective, members_));
    return communicator.launch(prepared, members_, step.key, priority, outcome);
  }
  const auto number = [&](std::size_t i) { return step.parts[i].plan->number; };
  const std::shared_ptr<transport::Communicator::Prepared>* prepared =
      plan.prepared.find(step.parts.size(), number);
  if (prepared == nullptr) {
    Plan::Prepared::Entry entry;
    for (std::size_t i = 0; i < step.parts.size(); ++i) entry.plans.push_back(number(i));
    MUSTER_ASSIGN_OR_RETURN(entry.prepared, communicator.prepare(work.collective, members_));
    prepared = &plan.prepared.add(std::move(entry));
  }
  return communicator.launch(*prepared, members_, step.key, priority, outcome);
}

}  // namespace muster::scheduler
