#include "scheduler/run/executor.hpp"

#include "api/base/assert.hpp"
#include "kernels/table.hpp"

namespace muster::scheduler {

device::Priority priority_of(std::uint32_t lane) noexcept {
  switch (lane) {
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

Result<Executor> Executor::open(device::Device& device, std::uint32_t world, std::uint32_t steps_max,
                                std::vector<std::unique_ptr<transport::Communicator>> communicators) {
  Executor executor;
  executor.communicators_ = std::move(communicators);
  for (std::uint32_t i = 0; i < world * MUSTER_LANE_COUNT; ++i) {
    MUSTER_ASSIGN_OR_RETURN(auto stream, device.open_stream(priority_of(i % MUSTER_LANE_COUNT)));
    executor.streams_.push_back(std::move(stream));
  }
  executor.slots_.resize(steps_max);
  for (Slot& slot : executor.slots_) {
    MUSTER_ASSIGN_OR_RETURN(slot.done, device.create_event());
    slot.shares.reserve(world);
  }
  executor.in_flight_.reserve(steps_max);
  executor.finished_.reserve(steps_max);
  executor.unfinished_at_.resize(executor.streams_.size());
  return executor;
}

Status Executor::launch(std::uint32_t step_index, const Step& step) {
  MUSTER_ASSERT(step_index < slots_.size() && !step.parts.empty());
  const Step::Part& first = step.parts.front();
  Slot& slot = slots_[step_index];
  slot.stream = first.rank.value * MUSTER_LANE_COUNT + first.lane;
  device::Stream& stream = *streams_[slot.stream];
  MUSTER_RETURN_IF_ERROR(enqueue(stream, slot, step));
  MUSTER_RETURN_IF_ERROR(stream.record(*slot.done));
  in_flight_.push_back(step_index);
  return {};
}

// Two steps of one stream may both end between the look at the first and the look at the second, so whoever
// stands behind a step that was found unfinished waits for the next poll.
void Executor::collect() {
  ++polls_;
  finished_.clear();
  std::size_t kept = 0;
  for (const std::uint32_t index : in_flight_) {
    const Slot& slot = slots_[index];
    if (unfinished_at_[slot.stream] != polls_ && slot.done->query()) {
      finished_.push_back({index, slot.done->began_at(), slot.done->reached_at()});
      continue;
    }
    unfinished_at_[slot.stream] = polls_;
    in_flight_[kept++] = index;
  }
  in_flight_.resize(kept);
}

Status Executor::enqueue(device::Stream& stream, Slot& slot, const Step& step) {
  const Plan& plan = *step.parts.front().plan;
  if (const KernelWork* work = plan.kernel()) return kernels::launch(stream, *work->kernel, work->args);
  slot.shares.clear();
  for (const Step::Part& part : step.parts) slot.shares.push_back(&part.plan->collective()->share);
  const CollectiveWork& work = *plan.collective();
  return communicators_[work.group.value]->launch(stream, work.collective, slot.shares);
}

}  // namespace muster::scheduler
