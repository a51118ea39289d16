// The calls of a session in check mode: each makes the plain call, with checks before and after it.
#pragma once

#include "api/base/clock.hpp"
#include "api/base/status.hpp"

#include <muster/muster.h>

#include <cstddef>
#include <cstdint>
#include <span>

// `session` is usable, and in check mode. Errors: those of the plain call, and kState for a finding. A
// finding before the plain call prevents it.
namespace muster::client {

Status checked_start(muster_session& session, muster_plan plan, const muster_submit& submit,
                     muster_point* point);
// *refused: the entry.
Status checked_start_batch(muster_session& session, std::span<muster_batch_entry> entries,
                           std::size_t* refused);
Status checked_run(muster_session& session, muster_plan plan, Nanos timeout);
Status checked_wait(muster_session& session, muster_point point, Nanos timeout);
Status checked_wait_any(muster_session& session, std::span<const muster_point> points, Nanos timeout,
                        std::size_t* index);
Status checked_test(muster_session& session, muster_point point);
Status checked_signal(muster_session& session, std::uint32_t timeline, std::uint64_t value);

}  // namespace muster::client
