// Publication: the data for a session's client in shared memory, and the way in which the engine wakes the
// client.
#pragma once

#include "api/base/nodes/span.hpp"
#include "api/base/result.hpp"
#include "api/shm/completion.hpp"
#include "api/shm/descriptor.hpp"
#include "api/shm/segment.hpp"
#include "scheduler/run/cause.hpp"

#include <cstdint>
#include <string_view>
#include <utility>

namespace muster::engine {

// Owns    the engine's end of the event socket.
// Thread  under the engine's lock.
// Bound   one byte in the event socket for each wake.
// Fails   open_events: NO_RESOURCE.
class Publication {
 public:
  Publication(const shm::SubmissionView& submission, shm::CompletionView& page)
      : completion_(page.writable_page(), submission.header()), counters_(page.writable_page()) {}

  // Each makes take_news() true once. `key`: of a collective of a group that spans nodes; else empty.
  void reached(std::uint32_t lane, std::uint64_t value, const transport::MatchKey& key);
  void stopped(std::uint32_t lane, std::uint64_t from, const scheduler::Cause& cause);
  void resumed(std::uint32_t lane, std::uint64_t to);
  void quarantined(std::uint32_t lane, std::uint32_t starts);
  bool take_news() { return std::exchange(news_, false); }
  void wake_client();

  shm::CounterWriter& counters() { return counters_; }
  void beat(Instant now) { completion_.beat(now); }
  // The client's end of a socket that gets a byte at each completion; the former one is closed. Its end of
  // file says that the engine is gone (a datagram socket would stay silent).
  Result<shm::Descriptor> open_events();
  // The session is over: every call of the client fails with `code` from now on.
  void close(Code code, std::string_view why = {});

 private:
  shm::CompletionWriter completion_;
  shm::CounterWriter counters_;
  shm::Descriptor events_;
  bool news_ = false;
};

}  // namespace muster::engine
