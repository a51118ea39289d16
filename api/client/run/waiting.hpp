// Waiting: tests of points and waits for them. A wait also ends at an interrupt or when the engine is lost.
#pragma once

#include "api/client/connection.hpp"
#include "api/client/interrupt.hpp"
#include "api/client/last_failure.hpp"
#include "api/client/submit/timelines.hpp"
#include "api/shm/completion.hpp"
#include "api/shm/socket.hpp"

#include <muster/muster.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

namespace muster::client {

// Owns    the event socket, once it was asked for, and a count of tests that found their point pending.
// Thread  the session's.
// Bound   a wait ends at its timeout, within 50 ms of an interrupt and within 200 ms of the engine's end.
// Fails   with the point's outcome; WAIT_TIMEOUT, WAIT_INTERRUPTED, DAEMON_LOST; BAD_ARGUMENT for a point
//         that the session does not have, STATE if the session would wait for itself.
class Waiting {
 public:
  // All outlive it.
  Waiting(shm::CompletionReader& completion, const Timelines& timelines, Connection& connection,
          Interrupt& interrupt, LastFailure& last_failure)
      : completion_(completion),
        timelines_(timelines),
        connection_(connection),
        interrupt_(interrupt),
        last_failure_(last_failure) {}

  // The point's outcome, or PENDING.
  Status test(muster_point point);
  // A negative timeout is the session's.
  Status wait(muster_point point, Nanos timeout);
  // The outcome of the first of `points` to have one; *index says which. If all are NONE, *index is
  // points.size().
  Status wait_any(std::span<const muster_point> points, Nanos timeout, std::size_t* index);
  // As wait(), but leaves an interrupt raised for the rest of the caller's own call.
  enum class Interrupts : std::uint8_t { kEnd, kIgnored };
  Status await(muster_point point, Nanos timeout, Interrupts interrupts = Interrupts::kEnd);

  // A socket that is readable when points have been reached. It stays the session's.
  Result<int> event_descriptor();

 private:
  Status outcome(muster_point point, Code code);
  std::optional<Status> loss_seen_in_passing();
  template<class WaitUntil>
  Status wait_in_slices(Nanos timeout, Interrupts interrupts, WaitUntil wait_until);
  Status not_reached() const;

  shm::CompletionReader& completion_;
  const Timelines& timelines_;
  Connection& connection_;
  Interrupt& interrupt_;
  LastFailure& last_failure_;
  shm::Descriptor events_;
  std::uint32_t pending_tests_ = 0;
};

}  // namespace muster::client
