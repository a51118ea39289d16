// Why a call that writes commands was refused, in words. Built after the refusal, from what the call looked
// at: a call that succeeds pays nothing for it.
#include "api/client/session.hpp"

#include <algorithm>

using muster::Code;
using muster::failure;
using muster::Status;
namespace shm = muster::shm;

namespace {

Status no_such_lane(const char* field, muster_lane lane) {
  return failure(Code::kBadArgument, "{} {} does not exist: lanes are MUSTER_LANE_COMPUTE..COPY ({}..{})",
                 field, lane, static_cast<int>(MUSTER_LANE_COMPUTE), static_cast<int>(MUSTER_LANE_COPY));
}

Status check_fields(const muster_submit& submit) {
  if (submit.size != sizeof submit)
    return failure(Code::kBadArgument, "submit.size is {}; initialise it by MUSTER_SUBMIT_INIT ({})",
                   submit.size, sizeof submit);
  if (submit.lane >= MUSTER_LANE_COUNT) return no_such_lane("submit.lane", submit.lane);
  if (submit.wait_count > MUSTER_WAITS_MAX)
    return failure(Code::kBadArgument, "submit.wait_count is {}; a start waits for {} points at most",
                   submit.wait_count, MUSTER_WAITS_MAX);
  if (submit.flags != 0) return failure(Code::kBadArgument, "submit.flags is {}; it must be 0", submit.flags);
  if (submit.deadline_ns < 0)
    return failure(Code::kBadArgument, "submit.deadline_ns {} is negative; 0 is the job's default",
                   submit.deadline_ns);
  return {};
}

Status no_such_plan(muster_plan plan) {
  return failure(Code::kStale, "plan {:#x} is none of this session: it was destroyed, or never made here",
                 plan);
}

}  // namespace

Status muster_session::not_pushed(Code code) {
  if (code != Code::kBusy) return Status(code, muster::code_sentence(code));
  if (const auto loss = loss_of_silent_engine()) return *loss;  // it will never make room
  return failure(Code::kBusy,
                 "the session's command ring is full: the engine has yet to take {} commands; wait for an "
                 "earlier point and call again",
                 shm::kRingCapacity);
}

Status muster_session::full(muster_lane lane) {
  if (const auto loss = loss_of_silent_engine()) return *loss;
  return failure(Code::kBusy,
                 "lane {} has {} starts that are not finished, all that limits.starts_per_lane_max allows; "
                 "wait for an earlier point of the lane and start again, or raise the limit",
                 lane, std::min(connection_.welcome.lane_depth, shm::kLaneDepth));
}

Status muster_session::check_wait(std::size_t i, muster_point wait) const {
  if (known_wait(wait)) return {};
  const std::uint32_t timeline = shm::point_timeline(wait);
  if (timeline < MUSTER_LANE_COUNT)
    return failure(Code::kBadArgument,
                   "submit.waits[{}] is start {} of lane {}, which this session has not made: its last is {}",
                   i, shm::point_value(wait), timeline, submitted_[timeline]);
  return failure(
      Code::kBadArgument,
      "submit.waits[{}] is of timeline {}, which is no lane and none that this session has created", i,
      timeline);
}

Status muster_session::not_started(Code code, muster_plan plan, const muster_submit& submit) {
  if (code == Code::kStale) return no_such_plan(plan);
  if (code == Code::kBusy) return lane_full(submit.lane) ? full(submit.lane) : not_pushed(code);
  if (code != Code::kBadArgument) return not_pushed(code);
  MUSTER_RETURN_IF_ERROR(check_fields(submit));
  for (std::uint32_t i = 0; i < submit.wait_count; ++i)
    MUSTER_RETURN_IF_ERROR(check_wait(i, submit.waits[i]));
  return not_pushed(code);
}

// Entry number `at` of a batch; those before it count as if they had been started.
Status muster_session::not_started(Code code, std::span<const muster_batch_entry> entries, std::size_t at) {
  const muster_submit& submit = entries[at].submit;
  if (code == Code::kStale) return no_such_plan(entries[at].plan);
  if (code == Code::kBusy) {
    const auto same_lane = [&](const muster_batch_entry& entry) { return entry.submit.lane == submit.lane; };
    const auto starts =
        std::count_if(entries.begin(), entries.begin() + static_cast<std::ptrdiff_t>(at) + 1, same_lane);
    return lane_full(submit.lane, static_cast<std::uint64_t>(starts)) ? full(submit.lane) : not_pushed(code);
  }
  if (code != Code::kBadArgument) return not_pushed(code);
  MUSTER_RETURN_IF_ERROR(check_fields(submit));
  for (std::uint32_t i = 0; i < submit.wait_count; ++i) {
    const muster_point wait = submit.waits[i];
    if ((wait & ~shm::kPointValueMask) != MUSTER_POINT_OF_ENTRY(0)) {
      MUSTER_RETURN_IF_ERROR(check_wait(i, wait));
    } else if (shm::point_value(wait) >= at) {
      return failure(Code::kBadArgument, "submit.waits[{}] is of entry {}, which does not stand before it", i,
                     shm::point_value(wait));
    }
  }
  return not_pushed(code);
}

Status muster_session::not_signalled(Code code, std::uint32_t timeline, std::uint64_t value) {
  if (code != Code::kBadArgument) return not_pushed(code);
  if (timeline < shm::kClientTimelineFirst || timeline >= shm::kClientTimelineFirst + timelines_)
    return failure(code, "timeline {} is none of this session, which has created {}: muster_timeline_create",
                   timeline, timelines_);
  const std::uint64_t current = signalled_[timeline - shm::kClientTimelineFirst];
  if (value < current)
    return failure(code, "value {} of timeline {} is lower than {}, to which it was raised before", value,
                   timeline, current);
  return failure(code, "value {} of timeline {} is more than a point holds: {}", value, timeline,
                 shm::kPointValueMask);
}

Status muster_session::not_reset(Code code, muster_lane lane) {
  return lane >= MUSTER_LANE_COUNT ? no_such_lane("lane", lane) : not_pushed(code);
}
