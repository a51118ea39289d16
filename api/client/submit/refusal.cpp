#include "api/client/submit/refusal.hpp"

#include "api/base/words.hpp"

namespace muster::client {

Status no_such_lane(const char* field, muster_lane lane) {
  return failure(Code::kBadArgument,
                 "{} {} does not exist: lanes are MUSTER_LANE_COMPUTE..COPY ({}..{}), and those that "
                 "muster_lane_create has made",
                 field, lane, static_cast<int>(MUSTER_LANE_COMPUTE), static_cast<int>(MUSTER_LANE_COPY));
}

Status no_such_plan(muster_plan plan) {
  return failure(Code::kStale, "{}", unknown_handle("plan", plan, "destroyed"));
}

Status kernels_only(muster_lane lane) {
  return failure(
      Code::kBadArgument,
      "submit.lane {} has no name and carries kernels only; a collective needs a lane by whose name its "
      "members meet (muster_lane_create)",
      lane);
}

Status check_fields(const muster_submit& submit, const Timelines& timelines) {
  if (submit.size != sizeof submit)
    return failure(Code::kBadArgument, "submit.size is {}; initialise it by MUSTER_SUBMIT_INIT ({})",
                   submit.size, sizeof submit);
  if (!timelines.has_lane(submit.lane)) return no_such_lane("submit.lane", submit.lane);
  if (submit.wait_count > MUSTER_WAITS_MAX)
    return failure(Code::kBadArgument, "submit.wait_count is {}; a start waits for {} points at most",
                   submit.wait_count, MUSTER_WAITS_MAX);
  if ((submit.flags & ~MUSTER_SUBMIT_OFFSETS) != 0)
    return failure(Code::kBadArgument, "submit.flags is {:#x}; it must be 0 or MUSTER_SUBMIT_OFFSETS ({:#x})",
                   submit.flags, MUSTER_SUBMIT_OFFSETS);
  if (submit.flags != 0 && submit.wait_count > MUSTER_WAITS_WITH_OFFSETS_MAX)
    return failure(Code::kBadArgument,
                   "submit.wait_count is {}; a start with MUSTER_SUBMIT_OFFSETS waits for {} points at most: "
                   "wait for the others beforehand",
                   submit.wait_count, MUSTER_WAITS_WITH_OFFSETS_MAX);
  if (submit.deadline_ns < 0)
    return failure(Code::kBadArgument, "submit.deadline_ns {} is negative; 0 is the group's default",
                   submit.deadline_ns);
  return {};
}

Status check_wait(std::uint32_t i, muster_point wait, const Timelines& timelines) {
  if (timelines.may_be_awaited(wait)) return {};
  const std::uint32_t timeline = shm::point_timeline(wait);
  if (timeline < shm::kLanesMax)
    return failure(Code::kBadArgument,
                   "submit.waits[{}] is start {} of lane {}, which this session has not made: its last is {}",
                   i, shm::point_value(wait), timeline, timelines.started(timeline));
  return failure(
      Code::kBadArgument,
      "submit.waits[{}] is of timeline {}, which is no lane and none that this session has created", i,
      timeline);
}

Status check_offsets(const PlanRecord::Told* told, const muster_submit& submit) {
  if (told == nullptr)
    return failure(
        Code::kBadArgument,
        "submit.flags has MUSTER_SUBMIT_OFFSETS, but a kernel's plan takes no offsets; leave it 0");
  const Status allowed = told->rooms.check(told->described.what, told->described.mine, offsets_in(submit));
  return allowed.ok() ? Status() : failure(allowed.code(), "submit: {}", allowed.message());
}

Status cannot_signal(std::uint32_t timeline, std::uint64_t value, const Timelines& timelines) {
  if (!timelines.is_own(timeline))
    return failure(Code::kBadArgument,
                   "timeline {} is none of this session, which has created {}: muster_timeline_create",
                   timeline, timelines.created());
  if (value < timelines.raised(timeline))
    return failure(Code::kBadArgument,
                   "value {} of timeline {} is lower than {}, to which it was raised before", value, timeline,
                   timelines.raised(timeline));
  return failure(Code::kBadArgument, "value {} of timeline {} is more than a point holds: {}", value,
                 timeline, shm::kPointValueMask);
}

}  // namespace muster::client
