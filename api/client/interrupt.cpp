#include "api/client/interrupt.hpp"

namespace muster::client {

Status Interrupt::leave(muster_group group, std::uint64_t epoch, muster_lane lane) {
  shm::InterruptMessage request;
  request.group = group;
  request.epoch = epoch;
  request.lane = lane;
  return connection_.tell(request, shm::MessageKind::kInterrupted);
}

Status Interrupt::as_interrupted(const Status& verdict) const {
  const bool own = verdict.code() == Code::kAborted && verdict.culprit() == connection_.welcome().rank;
  return own ? Status(Code::kInterrupted, verdict.message(), verdict.culprit()) : verdict;
}

}  // namespace muster::client
