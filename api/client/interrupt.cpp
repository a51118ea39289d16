// Interrupts: one flag that any thread raises, and how the session's own thread leaves what it waits in.
#include "api/client/forks.hpp"
#include "api/client/session.hpp"
#include "api/shm/message.hpp"

using muster::Code;
using muster::Status;
namespace shm = muster::shm;

// From a signal handler too: no allocation, no lock, no system call, and errno stays. What the caller wrote
// before is seen by whoever finds itself interrupted.
Code muster_session::interrupt() noexcept {
  static_assert(std::atomic<bool>::is_always_lock_free, "a signal handler takes no lock");
  if (muster::client::forks() != forks_) return Code::kStale;
  interrupt_.store(true, std::memory_order_release);
  return Code::kOk;
}

// The call is over: the interrupt was for it. A group's failure counts as its end too, or the first wait of
// the recovery would pay for a wait that is long over.
Status muster_session::spend_interrupt(Status status) {
  const bool ended = status.code() == Code::kWaitInterrupted || muster::is_group_failure(status.code());
  if (ended) interrupt_.exchange(false, std::memory_order_acquire);
  return status;
}

// Asks the engine to end what this rank waits in, for everybody. It may have ended otherwise by now.
Status muster_session::leave(muster_group group, std::uint64_t epoch, muster_lane lane) {
  shm::InterruptMessage request;
  request.group = group;
  request.epoch = epoch;
  request.lane = lane;
  const auto done = ask<shm::Plain>(request, shm::MessageKind::kInterrupted, shm::MessageKind::kDone);
  return done ? Status() : done.error();
}

// What this rank has ended itself is told to it in its own words.
Status muster_session::as_interrupted(const Status& verdict) const {
  const bool own = verdict.code() == Code::kAborted && verdict.culprit() == welcome().rank;
  return own ? Status(Code::kInterrupted, verdict.message(), verdict.culprit()) : verdict;
}

extern "C" muster_status_t muster_interrupt(muster_session* session) {
  return static_cast<muster_status_t>(session != nullptr ? session->interrupt() : Code::kBadArgument);
}
