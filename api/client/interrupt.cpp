#include "api/client/interrupt.hpp"

namespace muster::client {

Status Interrupt::leave(muster_group group, std::uint64_t epoch, muster_lane lane) {
  shm::InterruptMessage request;
  request.group = group;
  request.epoch = epoch;
  request.lane = lane;
  const auto done =
      connection_.ask<shm::Plain>(request, shm::MessageKind::kInterrupted, shm::MessageKind::kDone);
  return done ? Status() : done.error();
}

Status Interrupt::as_interrupted(const Status& verdict) const {
  const bool own = verdict.code() == Code::kAborted && verdict.culprit() == connection_.welcome().rank;
  return own ? Status(Code::kInterrupted, verdict.message(), verdict.culprit()) : verdict;
}

}  // namespace muster::client
