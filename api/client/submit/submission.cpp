#include "api/client/submit/submission.hpp"

#include "api/base/fault_point.hpp"
#include "api/client/submit/refusal.hpp"

#include <algorithm>
#include <bit>
#include <utility>

#include <unistd.h>

namespace muster::client {
namespace {

constexpr std::uint64_t kPointOfEntry = MUSTER_POINT_OF_ENTRY(0);

// The lane of the lowest bit.
muster_lane lowest(std::uint64_t lanes) {
  return static_cast<muster_lane>(std::countr_zero(lanes));
}

// Whether the code refuses the arguments, or reports a limit that is reached.
bool is_refusal(Code code) {
  return code == Code::kBusy || code == Code::kBadArgument || code == Code::kUnsupported;
}

bool is_entry(muster_point wait) {
  return (wait & ~shm::kPointValueMask) == kPointOfEntry;
}

// Whether lane, flags, deadline and number of waits are those of a start, and of one with offsets.
bool is_well_formed(const muster_submit& submit) {
  return submit.lane < shm::kLanesMax && submit.wait_count <= MUSTER_WAITS_MAX && submit.flags == 0 &&
         submit.deadline_ns >= 0;
}

bool is_well_formed_at(const muster_submit& submit) {
  return submit.lane < shm::kLanesMax && submit.wait_count <= MUSTER_WAITS_WITH_OFFSETS_MAX &&
         submit.flags == MUSTER_SUBMIT_OFFSETS && submit.deadline_ns >= 0;
}

// In terms of the plan as the engine has it once it knows the plan's new counts.
bool takes_offsets(const PlanRecord& record, const muster_submit& submit) {
  const PlanRecord::Told* const told = record.told.get();
  return told != nullptr && told->rooms.allow(told->described.what, told->described.mine, offsets_in(submit));
}

template<shm::Command::Kind kKind>
shm::Command start_of(muster_plan plan, const muster_submit& submit) {
  constexpr bool kAt = kKind == shm::Command::Kind::kStartAt;
  const auto wait = [&](std::uint32_t i) {
    return i < submit.wait_count ? submit.waits[i] : MUSTER_POINT_NONE;
  };
  return {.kind = kKind,
          .lane = static_cast<std::uint16_t>(submit.lane),
          .plan = plan,
          .waits = {wait(0), wait(1), kAt ? submit.source_offset_bytes : wait(shm::kSourceOffsetAt),
                    kAt ? submit.target_offset_bytes : wait(shm::kTargetOffsetAt)},
          .deadline_ns = static_cast<std::uint64_t>(submit.deadline_ns)};
}

}  // namespace

Submission::Submission(const Ends& ends, shm::Descriptor doorbell, Connection& connection, PlanTable& plans)
    : ring_(client::ring_writer(ends.ring, ends.page)),
      completion_(ends.completion),
      doorbell_(std::move(doorbell)),
      connection_(connection),
      plans_(plans),
      lane_depth_(std::min(connection.welcome().lane_depth, shm::kLaneDepth)) {}

// ---- one start ---------------------------------------------------------------------------------

Code Submission::start(muster_plan plan, const muster_submit& submit, muster_point* point) {
  if (!is_well_formed(submit)) [[unlikely]]
    return start_at(plan, submit, point);
  return start_as<shm::Command::Kind::kStart>(plan, submit, point);
}

// Separate from start(), which so pays nothing for offsets.
Code Submission::start_at(muster_plan plan, const muster_submit& submit, muster_point* point) {
  if (!is_well_formed_at(submit)) return Code::kBadArgument;
  return start_as<shm::Command::Kind::kStartAt>(plan, submit, point);
}

template<shm::Command::Kind kKind>
Code Submission::start_as(muster_plan plan, const muster_submit& submit, muster_point* point) {
  PlanRecord* const record = plans_.find(plan);
  if (record == nullptr) return Code::kStale;
  if constexpr (kKind == shm::Command::Kind::kStartAt)
    if (!takes_offsets(*record, submit)) return check_offsets(record->told.get(), submit).code();
  for (std::uint32_t i = 0; i < submit.wait_count; ++i)
    if (!timelines_.may_be_awaited(submit.waits[i])) return Code::kBadArgument;
  const muster_lane lane = submit.lane;
  if (lane_full(lane)) return Code::kBusy;
  MUSTER_FAULT_POINT("start.checked");
  if (lanes_[lane].flags != 0 || !record->news.empty()) [[unlikely]]
    if (const Code code = say_first(lane, *record); code != Code::kOk) return code;
  if (const Code code = ring_.push(start_of<kKind>(plan, submit)); code != Code::kOk) return code;
  if (ring_.doorbell_due()) ring_doorbell();
  MUSTER_FAULT_POINT("start.pushed");
  lanes_[lane].flags &= kKernelsOnly;
  const muster_point started = timelines_.start(lane);
  record->last = started;
  if (point != nullptr) *point = started;
  return Code::kOk;
}

// Commands that the engine must read before a start: the lane's reset and the plan's new counts.
Code Submission::say_first(muster_lane lane, PlanRecord& record) {
  if (!carries(lane, record)) return Code::kBadArgument;
  if (const Code code = reset_if_asked(lane); code != Code::kOk) return code;
  return tell(record);
}

bool Submission::lane_stays_full(muster_lane lane, std::uint64_t starts) {
  if (!timelines_.has_lane(lane)) return true;
  const std::uint64_t decided = completion_.decided(lane, timelines_.started(lane));
  lanes_[lane].room_to = std::max(lanes_[lane].room_to, shm::make_point(lane, decided + lane_depth_));
  return timelines_.latest(lane) + starts > lanes_[lane].room_to;
}

Code Submission::push(std::span<const shm::Command> commands) {
  const Code code = ring_.push_all(commands);
  if (code == Code::kOk && ring_.doorbell_due()) ring_doorbell();
  return code;
}

void Submission::ring_doorbell() {
  MUSTER_FAULT_POINT("bell.due");
  const std::uint64_t one = 1;
  [[maybe_unused]] const auto rung = ::write(doorbell_.get(), &one, sizeof one);
  MUSTER_FAULT_POINT("bell.rung");
}

Code Submission::tell(PlanRecord& record) {
  if (record.news.empty()) return Code::kOk;
  const Code code = push(record.news);
  if (code != Code::kOk) return code;
  MUSTER_FAULT_POINT("recount.told");
  plans_.clear_news(record);
  return Code::kOk;
}

Code Submission::tell_all() {
  for (PlanRecord& record : plans_.records())
    if (const Code code = tell(record); code != Code::kOk) return code;
  return Code::kOk;
}

// ---- several starts as one ---------------------------------------------------------------------

// Hands out points only once all entries are valid: starts are counted separately and added at the end.
Code Submission::start_batch(std::span<muster_batch_entry> entries, std::size_t* refused) {
  batch_.assign(entries.size(), shm::Command{});
  std::array<std::uint64_t, shm::kLanesMax> starts;  // valid for the lanes in `used`
  std::uint64_t used = 0;
  for (std::size_t i = 0; i < entries.size(); ++i) {
    muster_batch_entry& entry = entries[i];
    const muster_submit& submit = entry.submit;
    shm::Command& command = batch_[*refused = i];
    if (submit.size != sizeof submit) return Code::kBadArgument;
    const bool at = is_well_formed_at(submit);
    if (!at && !is_well_formed(submit)) return Code::kBadArgument;
    if (!timelines_.has_lane(submit.lane)) return Code::kBadArgument;
    const PlanRecord* const record = plans_.find(entry.plan);
    if (record == nullptr) return Code::kStale;
    if (at && !takes_offsets(*record, submit)) return check_offsets(record->told.get(), submit).code();
    if (!carries(submit.lane, *record)) return Code::kBadArgument;
    command = at ? start_of<shm::Command::Kind::kStartAt>(entry.plan, submit)
                 : start_of<shm::Command::Kind::kStart>(entry.plan, submit);
    for (std::uint32_t k = 0; k < submit.wait_count; ++k) {
      const muster_point wait = submit.waits[k];
      const bool known = is_entry(wait) ? shm::point_value(wait) < i : timelines_.may_be_awaited(wait);
      if (!known) return Code::kBadArgument;
      command.waits[k] = is_entry(wait) ? entries[shm::point_value(wait)].point : wait;
    }
    const std::uint64_t bit = std::uint64_t{1} << submit.lane;
    if ((std::exchange(used, used | bit) & bit) == 0) starts[submit.lane] = 0;
    entry.point = timelines_.latest(submit.lane) + ++starts[submit.lane];
    if (lane_full(submit.lane, starts[submit.lane])) return Code::kBusy;
  }
  MUSTER_FAULT_POINT("batch.checked");
  for (std::uint64_t left = used; left != 0; left &= left - 1)
    if (const Code code = reset_if_asked(lowest(left)); code != Code::kOk) return code;
  for (std::size_t i = 0; i < entries.size(); ++i)
    if (const Code code = tell(*plans_.find(entries[*refused = i].plan)); code != Code::kOk) return code;
  if (const Code code = push(batch_); code != Code::kOk) return code;
  MUSTER_FAULT_POINT("batch.pushed");
  for (const muster_batch_entry& entry : entries) plans_.find(entry.plan)->last = entry.point;
  for (std::uint64_t left = used; left != 0; left &= left - 1) {
    const muster_lane lane = lowest(left);
    timelines_.start(lane, starts[lane]);
    lanes_[lane].flags &= kKernelsOnly;
  }
  return Code::kOk;
}

// ---- lanes, signals and resets ------------------------------------------------------------------------

void Submission::open_lane(muster_lane lane, bool kernels_only) {
  timelines_.open_lane(lane);
  lanes_[lane] = {MUSTER_POINT_NONE, kernels_only ? kKernelsOnly : std::uint8_t{0}};
}

void Submission::close_lane(muster_lane lane) {
  timelines_.close_lane(lane);
  lanes_[lane] = Lane();
}

Code Submission::signal(std::uint32_t timeline, std::uint64_t value) {
  if (!timelines_.is_own(timeline)) return Code::kBadArgument;
  if (value < timelines_.raised(timeline) || value > shm::kPointValueMask) return Code::kBadArgument;
  shm::Command command;
  command.kind = shm::Command::Kind::kSignal;
  command.lane = static_cast<std::uint16_t>(timeline);
  command.plan = value;
  const Code code = push(std::span(&command, 1));
  MUSTER_FAULT_POINT("signal.pushed");
  if (code == Code::kOk) timelines_.raise(timeline, value);
  return code;
}

Code Submission::mark_step(std::uint64_t step) {
  shm::Command command;
  command.kind = shm::Command::Kind::kStep;
  command.plan = step;
  return push(std::span(&command, 1));
}

Code Submission::reset(muster_lane lane) {
  if (!timelines_.has_lane(lane)) return Code::kBadArgument;
  if (completion_.quarantined(lane) > 0) return Code::kBusy;
  lanes_[lane].flags |= kResetAsked;
  const Code code = reset_if_asked(lane);
  MUSTER_FAULT_POINT("reset.pushed");
  return code;
}

// Sends a reset only for a lane that this process sees stopped. Otherwise the engine could read the reset
// after a failure that this process has not seen, and the next failure would hide that one. The lane's next
// start sees a failure between the reset and itself.
Code Submission::reset_if_asked(muster_lane lane) {
  if (!lanes_[lane].reset_asked()) return Code::kOk;
  bool stopped = false;
  if (const Code code = completion_.stopped(lane, &stopped); code != Code::kOk || !stopped) return code;
  shm::Command command;
  command.kind = shm::Command::Kind::kResetLane;
  command.lane = static_cast<std::uint16_t>(lane);
  const Code code = push(std::span(&command, 1));
  if (code != Code::kOk) return code;
  return completion_.remember_reset(lane, timelines_.started(lane));
}

// If a run by the engine cannot start, it must fail before the members meet for it: else the others would
// wait for this rank in the engine. All meet once the lane runs again.
Status Submission::check_lane(muster_lane lane) {
  if (const Code code = reset_if_asked(lane); code != Code::kOk) return not_pushed(code);
  if (const auto why = completion_.failure(lane))
    return failure(
        Code::kState,
        "the run goes by the engine on lane {}, which stands still ({}) until muster_lane_reset; it has "
        "not begun",
        lane, why->text.empty() ? code_sentence(why->status) : why->text);
  return lane_full(lane) ? full(lane) : Status();
}

// ---- refusals in words -------------------------------------------------------------------------

Status Submission::not_pushed(Code code) {
  if (code != Code::kBusy) return Status(code, code_sentence(code));
  if (const auto loss = connection_.loss_of_silent_engine()) return *loss;  // a lost engine makes no room
  return failure(Code::kBusy,
                 "the session's command ring is full: the engine has yet to take {} commands; wait for an "
                 "earlier point and call again",
                 shm::kRingCapacity);
}

Status Submission::full(muster_lane lane) {
  if (const auto loss = connection_.loss_of_silent_engine()) return *loss;
  return failure(Code::kBusy,
                 "lane {} has {} starts that are not finished, all that limits.starts_per_lane_max allows; "
                 "wait for an earlier point of the lane and start again, or raise the limit",
                 lane, lane_depth_);
}

Status Submission::not_started(Code code, muster_plan plan, const muster_submit& submit) {
  if (code == Code::kStale) return no_such_plan(plan);
  if (!is_refusal(code)) return not_pushed(code);
  MUSTER_RETURN_IF_ERROR(check_fields(submit, timelines_));
  if (code == Code::kBusy) return lane_full(submit.lane) ? full(submit.lane) : not_pushed(code);
  const PlanRecord* const record = plans_.find(plan);
  if (record != nullptr && !carries(submit.lane, *record)) return kernels_only(submit.lane);
  if (record != nullptr && is_well_formed_at(submit))
    MUSTER_RETURN_IF_ERROR(check_offsets(record->told.get(), submit));
  for (std::uint32_t i = 0; i < submit.wait_count; ++i)
    MUSTER_RETURN_IF_ERROR(check_wait(i, submit.waits[i], timelines_));
  return not_pushed(code);
}

// Entries before number `at` count as started.
Status Submission::not_started(Code code, std::span<const muster_batch_entry> entries, std::size_t at) {
  const muster_submit& submit = entries[at].submit;
  if (code == Code::kStale) return no_such_plan(entries[at].plan);
  if (!is_refusal(code)) return not_pushed(code);
  MUSTER_RETURN_IF_ERROR(check_fields(submit, timelines_));
  if (code == Code::kBusy) {
    const auto same_lane = [&](const muster_batch_entry& entry) { return entry.submit.lane == submit.lane; };
    const auto starts =
        std::count_if(entries.begin(), entries.begin() + static_cast<std::ptrdiff_t>(at) + 1, same_lane);
    return lane_full(submit.lane, static_cast<std::uint64_t>(starts)) ? full(submit.lane) : not_pushed(code);
  }
  const PlanRecord* const record = plans_.find(entries[at].plan);
  if (record != nullptr && !carries(submit.lane, *record)) return kernels_only(submit.lane);
  if (record != nullptr && is_well_formed_at(submit))
    MUSTER_RETURN_IF_ERROR(check_offsets(record->told.get(), submit));
  for (std::uint32_t i = 0; i < submit.wait_count; ++i) {
    const muster_point wait = submit.waits[i];
    if (!is_entry(wait)) {
      MUSTER_RETURN_IF_ERROR(check_wait(i, wait, timelines_));
    } else if (shm::point_value(wait) >= at) {
      return failure(Code::kBadArgument, "submit.waits[{}] is of entry {}, which does not stand before it", i,
                     shm::point_value(wait));
    }
  }
  return not_pushed(code);
}

}  // namespace muster::client
