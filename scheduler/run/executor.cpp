#include "scheduler/run/executor.hpp"

#include "api/base/assert.hpp"
#include "kernels/table.hpp"

#include <utility>

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

Result<Executor> Executor::open(const Options& options,
                                std::vector<std::unique_ptr<transport::Communicator>> communicators) {
  Executor executor;
  executor.lanes_per_rank_ = options.lanes;
  executor.communicators_ = std::move(communicators);
  for (device::Device* const device : options.devices)
    for (std::uint32_t i = 0; i < options.lanes; ++i) {
      Lane lane;
      MUSTER_ASSIGN_OR_RETURN(lane.stream, device->open_stream(priority_of(i)));
      lane.ends.resize(options.launch_depth);
      for (auto& end : lane.ends) {
        MUSTER_ASSIGN_OR_RETURN(end, device->create_event());
      }
      executor.lanes_.push_back(std::move(lane));
    }
  const std::size_t steps = executor.lanes_.size() * options.launch_depth;
  executor.slots_ = std::vector<Slot>(steps);
  executor.members_.reserve(options.devices.size());
  executor.in_flight_.reserve(steps);
  executor.finished_.reserve(steps);
  return executor;
}

// A step that was launched only in part ends like any other, because that part may run.
Status Executor::launch(std::uint32_t step_index, const Step& step) {
  MUSTER_ASSERT(step_index < slots_.size() && !step.parts.empty());
  Slot& slot = slots_[step_index];
  slot.lane = lane_of(step.parts.front());
  Lane& lane = lanes_[slot.lane];
  slot.outcome.renew();
  if (Status launched = enqueue(*lane.stream, slot.outcome, step); !launched.ok()) {
    for (const Step::Part& part : step.parts) MUSTER_RETURN_IF_ERROR(lanes_[lane_of(part)].stream->health());
    slot.outcome.fail(std::move(launched));
  }
  device::Event& end = *lane.ends[lane.launched++ % lane.ends.size()];
  MUSTER_RETURN_IF_ERROR(lane.stream->record(end));
  slot.end = &end;
  in_flight_.push_back(step_index);
  return {};
}

// Two steps of one lane may both end after the query of the first and before the query of the second. So
// steps behind an unfinished one wait for the next poll, which keeps a lane's steps in order.
void Executor::collect() {
  ++polls_;
  finished_.clear();
  std::size_t kept = 0;
  for (const std::uint32_t index : in_flight_) {
    const Slot& slot = slots_[index];
    Lane& lane = lanes_[slot.lane];
    if (lane.unfinished_at != polls_ && slot.end->query()) {
      finished_.push_back({index, slot.end->began_at(), slot.end->reached_at(), slot.outcome.failure()});
      continue;
    }
    lane.unfinished_at = polls_;
    in_flight_[kept++] = index;
  }
  in_flight_.resize(kept);
}

// The health of a device is the same from all its streams, so one stream per rank is asked.
Status Executor::health() const {
  if (idle()) return {};
  for (std::size_t i = 0; i < lanes_.size(); i += lanes_per_rank_)
    MUSTER_RETURN_IF_ERROR(lanes_[i].stream->health());
  return {};
}

Status Executor::enqueue(device::Stream& stream, transport::StepOutcome& outcome, const Step& step) {
  const Plan& plan = *step.parts.front().plan;
  if (const KernelWork* work = plan.kernel()) return kernels::launch(stream, *work->kernel, work->args);
  members_.clear();
  for (const Step::Part& part : step.parts)
    members_.push_back({&part.plan->collective()->share, lanes_[lane_of(part)].stream.get()});
  const CollectiveWork& work = *plan.collective();
  return communicators_[work.group.value]->launch(work.collective, members_, outcome);
}

}  // namespace muster::scheduler
