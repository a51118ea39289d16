#include "daemon/engine/session/publication.hpp"

#include "api/base/system_call.hpp"

#include <cerrno>
#include <cstring>

#include <sys/socket.h>

namespace muster::engine {

void Publication::reached(std::uint32_t lane, std::uint64_t value, const transport::MatchKey& key) {
  if (key.place.group != 0) completion_.set_group_epoch(lane, {key.place.group, key.epoch});
  completion_.publish(lane, value);
  news_ = true;
}

void Publication::stopped(std::uint32_t lane, std::uint64_t from, const scheduler::Cause& cause) {
  completion_.fail(lane, from, cause.code, cause.culprit, cause.text);
  news_ = true;
}

void Publication::resumed(std::uint32_t lane, std::uint64_t to) {
  completion_.reset(lane, to);
  news_ = true;
}

void Publication::quarantined(std::uint32_t lane, std::uint32_t starts) {
  completion_.quarantine(lane, starts);
  news_ = true;
}

// A full event socket is readable already, and a client that does not read must not block the engine.
void Publication::wake_client() {
  completion_.wake();
  if (!events_.valid()) return;
  const char byte = 1;
  [[maybe_unused]] const auto sent = ::send(events_.get(), &byte, 1, MSG_DONTWAIT | MSG_NOSIGNAL);
}

void Publication::close(Code code, std::string_view why) {
  completion_.close(code, why);
  wake_client();
}

Result<shm::Descriptor> Publication::open_events() {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) != 0)
    return fail(Code::kNoResource, "{}", refused_call("socketpair", errno, kRaiseOpenFiles));
  events_.reset(ends[0]);
  return shm::Descriptor(ends[1]);
}

}  // namespace muster::engine
