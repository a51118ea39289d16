// An engine's knowledge of waits, as a message to supervisors, which merge the messages of several nodes
// (api/base/blame/merge.hpp).
#pragma once

#include "api/base/blame/snapshot.hpp"
#include "daemon/control/job.hpp"

#include <cstdint>

namespace muster::control {

// daemon/control/README.md, `snapshot`. All times are ages. The ranks' lags are left out, because they are
// most of its bytes.
Json snapshot_json(const blame::Snapshot& snapshot);
// Such a snapshot of a job of `world` ranks. It was taken at instant 0, and all else happened before. It may
// come from another node: kProtocol names a field that is missing, of a wrong type, or out of range.
Result<blame::Snapshot> snapshot_in(const Json& json, std::uint32_t world);

}  // namespace muster::control
