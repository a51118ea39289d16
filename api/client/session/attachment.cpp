#include "api/client/session/attachment.hpp"

#include "api/base/fault_point.hpp"
#include "api/shm/endpoint.hpp"
#include "api/shm/message.hpp"

#include <algorithm>
#include <ctime>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <sys/utsname.h>

namespace muster::client {
namespace {

constexpr std::uint32_t kHelloSerial = 1;

Result<shm::Hello> hello_of(const bootstrap::LaunchedRank& identity) {
  auto hello = shm::make_message<shm::Hello>(shm::MessageKind::kHello, kHelloSerial);
  hello.rank = identity.rank;
  hello.world_size = identity.world_size;
  hello.local_rank = identity.local_rank;
  hello.local_size = identity.local_size;
  MUSTER_RETURN_IF_ERROR(shm::set_text(hello.job, identity.job, "the job's name"));
  MUSTER_RETURN_IF_ERROR(shm::set_text(hello.mesh, identity.mesh, "the mesh"));
  MUSTER_RETURN_IF_ERROR(shm::set_text(hello.token, identity.token, "the token"));
  shm::set_clipped(hello.slurm, identity.slurm);
  utsname machine{};
  if (uname(&machine) == 0) shm::set_clipped(hello.host, machine.nodename);
  MUSTER_RETURN_IF_ERROR(shm::set_text(hello.key, identity.key, "the job's key"));
  return hello;
}

constexpr const char* kSilence = "the daemon closed the connection";

// Whether the connection ended without a reason from the daemon.
bool is_silence(const Status& status) {
  return status.code() == Code::kDaemonLost && status.message() == kSilence;
}

Result<shm::Welcome> welcome_of(std::span<const std::byte> bytes) {
  if (bytes.empty()) return fail(Code::kDaemonLost, kSilence);
  MUSTER_ASSIGN_OR_RETURN(auto welcome,
                          shm::checked_answer<shm::Welcome>(bytes, shm::MessageKind::kWelcome, kHelloSerial));
  welcome.job[sizeof welcome.job - 1] = '\0';
  welcome.mesh[sizeof welcome.mesh - 1] = '\0';
  return welcome;
}

// A daemon's first answer, with its connection.
struct Welcomed {
  shm::Descriptor socket;
  shm::Message answer;
  shm::Welcome welcome;
};

Result<Welcomed> knock(const std::string& endpoint, shm::Hello hello, Instant deadline, const Clock& clock) {
  MUSTER_ASSIGN_OR_RETURN(shm::Descriptor socket,
                          shm::connect_to(shm::ranks_socket_at(endpoint), deadline, clock));
  MUSTER_FAULT_POINT("attach.connected");
  hello.timeout_ns = std::max(Nanos(0), deadline - clock.now()).count();
  const Status sent = shm::send_message(socket, shm::bytes_of(hello));
  // DAEMON_LOST is no reason to stop: a daemon without room may have sent its reason and closed before our
  // Hello, and the reason can still be read.
  if (!sent.ok() && sent.code() != Code::kDaemonLost) return fail(sent);
  MUSTER_FAULT_POINT("attach.hello_sent");
  const shm::MessageBuffer buffer;
  MUSTER_ASSIGN_OR_RETURN(shm::Message answer, shm::receive_message(socket, buffer.all(), deadline, clock));
  const auto bytes = buffer.all().first(answer.bytes);
  MUSTER_ASSIGN_OR_RETURN(const shm::Welcome welcome, welcome_of(bytes));
  return Welcomed{std::move(socket), std::move(answer), welcome};
}

// A daemon that is being replaced drops the connection without an answer; its successor answers at the same
// socket. The rank is not attached yet then: an engine that has the connection would keep it.
Result<Welcomed> knock_until(const std::string& endpoint, const shm::Hello& hello, Instant deadline,
                             const Clock& clock) {
  constexpr int kKnocksMax = 100;
  constexpr std::int64_t kPauseMaxMs = 100;
  std::int64_t pause_ms = 1;
  for (int knocks = 1;; ++knocks) {
    auto welcomed = knock(endpoint, hello, deadline, clock);
    if (!welcomed && welcomed.error().code() == Code::kWaitTimeout)
      return fail(
          Code::kDaemonLost,
          "the daemon at {} has not answered in time: it is stopped, or the job is not ready, or the "
          "rank is held by another process that may be leaving; look with `muster status{}` and `muster "
          "jobs{}`, or wait longer (timeout_ns)",
          endpoint, shm::endpoint_option(endpoint), shm::endpoint_option(endpoint));
    const bool replaced = !welcomed && is_silence(welcomed.error());
    if (!replaced || knocks == kKnocksMax || clock.now() >= deadline) return welcomed;
    const timespec pause{.tv_sec = 0, .tv_nsec = pause_ms * 1'000'000};
    nanosleep(&pause, nullptr);
    pause_ms = std::min(2 * pause_ms, kPauseMaxMs);
  }
}

}  // namespace

Result<Attachment> attach(const bootstrap::LaunchedRank& identity, Nanos timeout) {
  const SteadyClock clock;
  const Instant deadline = later(clock.now(), timeout);
  MUSTER_ASSIGN_OR_RETURN(const shm::Hello hello, hello_of(identity));
  MUSTER_FAULT_POINT("attach.identified");
  MUSTER_ASSIGN_OR_RETURN(Welcomed welcomed, knock_until(identity.endpoint, hello, deadline, clock));
  shm::Descriptor socket = std::move(welcomed.socket);
  shm::Message answer = std::move(welcomed.answer);
  const shm::Welcome& welcome = welcomed.welcome;
  MUSTER_FAULT_POINT("attach.welcomed");
  const bool direct = welcome.direct_bytes > 0;
  if (answer.descriptors.size() != (direct ? 5u : 3u))
    return fail(Code::kProtocol, "the daemon's welcome lacks its descriptors");
  MUSTER_ASSIGN_OR_RETURN(auto submission, shm::SubmissionView::attach(std::move(answer.descriptors[0])));
  MUSTER_FAULT_POINT("attach.submission_mapped");
  MUSTER_ASSIGN_OR_RETURN(auto completion, shm::CompletionView::attach(std::move(answer.descriptors[1])));
  MUSTER_FAULT_POINT("attach.completion_mapped");
  Attachment attachment{std::move(socket),
                        std::move(answer.descriptors[2]),
                        std::move(submission),
                        std::move(completion),
                        welcome,
                        identity.endpoint,
                        timeout,
                        {},
                        {}};
  if (!direct) return attachment;
  MUSTER_RETURN_IF_ERROR(shm::check_memory(answer.descriptors[3], welcome.direct_bytes));
  MUSTER_RETURN_IF_ERROR(shm::check_memory(answer.descriptors[4], welcome.group_bytes));
  MUSTER_ASSIGN_OR_RETURN(attachment.direct, shm::Mapping::map(answer.descriptors[3], welcome.direct_bytes,
                                                               shm::Mapping::Access::kReadWrite));
  MUSTER_FAULT_POINT("attach.direct_mapped");
  MUSTER_ASSIGN_OR_RETURN(attachment.groups, shm::Mapping::map(answer.descriptors[4], welcome.group_bytes,
                                                               shm::Mapping::Access::kRead));
  MUSTER_FAULT_POINT("attach.groups_mapped");
  return attachment;
}

}  // namespace muster::client
