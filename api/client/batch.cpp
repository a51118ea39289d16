// Several starts as one.
#include "api/base/fault_point.hpp"
#include "api/client/session.hpp"

#include <array>
#include <span>

using muster::Code;
using muster::failure;
using muster::Status;
namespace shm = muster::shm;

namespace {

constexpr std::uint64_t kPointOfEntry = MUSTER_POINT_OF_ENTRY(0);

bool is_entry(muster_point wait) {
  return (wait & ~shm::kPointValueMask) == kPointOfEntry;
}

}  // namespace

// Nothing is handed out before all have been found sound: points are counted as if, and taken over at the
// end.
Code muster_session::start_batch(std::span<muster_batch_entry> entries, std::size_t* refused) {
  batch_.assign(entries.size(), shm::Command{});
  std::array<std::uint64_t, MUSTER_LANE_COUNT> starts{};
  for (std::size_t i = 0; i < entries.size(); ++i) {
    muster_batch_entry& entry = entries[i];
    const muster_submit& submit = entry.submit;
    shm::Command& command = batch_[*refused = i];
    if (submit.size != sizeof submit) return Code::kBadArgument;
    if (const Code code = command_of(entry.plan, submit, &command); code != Code::kOk) return code;
    for (std::uint32_t k = 0; k < submit.wait_count; ++k) {
      const muster_point wait = submit.waits[k];
      const bool known = is_entry(wait) ? shm::point_value(wait) < i : known_wait(wait);
      if (!known) return Code::kBadArgument;
      command.waits[k] = is_entry(wait) ? entries[shm::point_value(wait)].point : wait;
    }
    entry.point = shm::make_point(submit.lane, submitted_[submit.lane] + ++starts[submit.lane]);
    if (lane_full(submit.lane, starts[submit.lane])) return Code::kBusy;
  }
  MUSTER_FAULT_POINT("batch.checked");
  for (std::size_t lane = 0; lane < starts.size(); ++lane)
    if (starts[lane] > 0)
      if (const Code code = reset_if_asked(static_cast<muster_lane>(lane)); code != Code::kOk) return code;
  for (std::size_t i = 0; i < entries.size(); ++i)
    if (const Code code = tell(*find(entries[*refused = i].plan)); code != Code::kOk) return code;
  if (const Code code = push(batch_); code != Code::kOk) return code;
  MUSTER_FAULT_POINT("batch.pushed");
  for (const muster_batch_entry& entry : entries) find(entry.plan)->last = entry.point;
  for (std::size_t lane = 0; lane < starts.size(); ++lane) {
    submitted_[lane] += starts[lane];
    reset_asked_[lane] = reset_asked_[lane] && starts[lane] == 0;
  }
  return Code::kOk;
}

extern "C" {

muster_status_t muster_plan_start_batch(muster_session* session, muster_batch_entry* entries, size_t count) {
  std::span<muster_batch_entry> batch;
  const muster_status_t status = muster::client::guarded([&]() -> Status {
    if (session == nullptr || (entries == nullptr && count > 0) || count > MUSTER_BATCH_MAX)
      return failure(Code::kBadArgument, "session and entries must be there, at most {} of them (not {})",
                     MUSTER_BATCH_MAX, count);
    batch = std::span(entries, count);
    MUSTER_RETURN_IF_ERROR(session->usable());
    std::size_t refused = 0;
    const Code code = session->start_batch(batch, &refused);
    if (code == Code::kOk) return {};
    const Status why = session->not_started(code, std::span<const muster_batch_entry>(batch), refused);
    if (why.code() != code) return why;  // the engine is gone
    return failure(code, "entry {}: {}", refused, why.message());
  });
  if (status != MUSTER_OK)
    for (muster_batch_entry& entry : batch) entry.point = MUSTER_POINT_NONE;
  return status;
}
}
