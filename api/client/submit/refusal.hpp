// Says in words why a command cannot be submitted: pure functions of the caller's arguments. They are called
// after a refusal, so a call that succeeds pays nothing for them.
#pragma once

#include "api/base/status.hpp"
#include "api/client/submit/plan_table.hpp"
#include "api/client/submit/timelines.hpp"

#include <muster/muster.h>

#include <cstdint>

namespace muster::client {

// `field` names the argument.
Status no_such_lane(const char* field, muster_lane lane);
Status no_such_plan(muster_plan plan);
// A collective on a lane without a name.
Status kernels_only(muster_lane lane);
// Ok if the submit is valid. Does not check its waits.
Status check_fields(const muster_submit& submit, const Timelines& timelines);
// Ok if a start may wait for wait number `i`.
Status check_wait(std::uint32_t i, muster_point wait, const Timelines& timelines);
inline Rooms::Offsets offsets_in(const muster_submit& submit) {
  return {submit.source_offset_bytes, submit.target_offset_bytes};
}
// Ok if a start may bring these offsets to its plan. nullptr: the plan is a kernel's.
Status check_offsets(const PlanRecord::Told* told, const muster_submit& submit);
// Explains why a signal was refused; never ok.
Status cannot_signal(std::uint32_t timeline, std::uint64_t value, const Timelines& timelines);

}  // namespace muster::client
