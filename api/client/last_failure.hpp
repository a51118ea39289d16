// LastFailure: the latest failure of a group (-2xx) that a call of the session returned.
#pragma once

#include "api/base/status.hpp"

#include <muster/muster.h>

#include <optional>

namespace muster::client {

// Owns    the status and its place.
// Thread  the session's.
// Bound   one failure; the next one replaces it.
// Fails   never.
class LastFailure {
 public:
  struct Call {
    Status status;
    muster_lane lane = MUSTER_LANE_NONE;  // the stopped lane
    muster_point failed_point = MUSTER_POINT_NONE;
  };

  // Keeps a group's failure; ignores any other status.
  void note(const Status& status, muster_lane lane = MUSTER_LANE_NONE,
            muster_point failed_point = MUSTER_POINT_NONE) {
    if (is_group_failure(status.code())) latest_ = Call{status, lane, failed_point};
  }
  const std::optional<Call>& latest() const { return latest_; }

 private:
  std::optional<Call> latest_;
};

}  // namespace muster::client
