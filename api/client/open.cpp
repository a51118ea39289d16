// muster_open and muster_close: from options and environment to a connected session.
#include "api/base/bootstrap.hpp"
#include "api/base/fault_point.hpp"
#include "api/base/utf8.hpp"
#include "api/base/variables.hpp"
#include "api/client/forks.hpp"
#include "api/client/session.hpp"
#include "api/shm/message.hpp"

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <memory>

using muster::Code;
using muster::fail;
using muster::failure;
using muster::Result;
using muster::Status;
namespace shm = muster::shm;

namespace {

constexpr muster::Nanos kDefaultTimeout = std::chrono::seconds(60);
constexpr std::uint32_t kHelloSerial = 1;

// What the caller says goes before what the environment says.
Result<muster::bootstrap::Identity> identity_of(const muster_open_options& options) {
  const auto lookup = muster::bootstrap::process_environment();
  MUSTER_ASSIGN_OR_RETURN(auto identity, muster::bootstrap::identify(lookup));
  if (options.rank >= 0) identity.rank = options.rank;
  if (options.world_size >= 0) identity.world_size = options.world_size;
  if (options.endpoint != nullptr) identity.endpoint = options.endpoint;
  if (options.job != nullptr) identity.job = options.job;
  if (options.mesh != nullptr) identity.mesh = options.mesh;
  if (options.token != nullptr) identity.token = options.token;
  if (identity.endpoint.empty())
    return fail(Code::kBadArgument,
                "muster_open_options.endpoint is empty: set it to the path of the daemon's socket, or leave "
                "it out for {}",
                muster::bootstrap::kDefaultEndpoint);
  if (identity.rank < 0)
    if (const auto half = muster::bootstrap::missing_half(lookup))
      return fail(Code::kBadArgument, "{}", *half);
  if (identity.rank < 0)
    return fail(Code::kBadArgument,
                "this process has no rank: start it with `muster run`, torchrun, mpirun or srun, or set "
                "both MUSTER_RANK and MUSTER_WORLD_SIZE (`muster env` shows what is looked at)");
  if (identity.job.empty())
    return fail(Code::kBadArgument, "this process has no job: set MUSTER_JOB, or start it with `muster run`");
  return identity;
}

Result<shm::Hello> hello_of(const muster::bootstrap::Identity& identity) {
  auto hello = shm::make_message<shm::Hello>(shm::MessageKind::kHello, kHelloSerial);
  hello.rank = identity.rank;
  hello.world_size = identity.world_size;
  hello.local_rank = identity.local_rank;
  hello.local_size = identity.local_size;
  MUSTER_RETURN_IF_ERROR(shm::set_text(hello.job, identity.job, "the job's name"));
  MUSTER_RETURN_IF_ERROR(shm::set_text(hello.mesh, identity.mesh, "the mesh"));
  MUSTER_RETURN_IF_ERROR(shm::set_text(hello.token, identity.token, "the token"));
  return hello;
}

constexpr const char* kSilence = "the daemon closed the connection";

// That the connection ended, as against a reason that the daemon gave, or nobody at the socket.
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

// A daemon's first word, and what came with it.
struct Welcomed {
  shm::Descriptor socket;
  shm::Message answer;
  shm::Welcome welcome;
};

Result<Welcomed> knock(const std::string& endpoint, const shm::Hello& hello, muster::Instant deadline,
                       const muster::Clock& clock) {
  MUSTER_ASSIGN_OR_RETURN(shm::Descriptor socket, shm::connect_to(endpoint, deadline, clock));
  MUSTER_FAULT_POINT("attach.connected");
  const Status sent = shm::send_message(socket, shm::bytes_of(hello));
  // A daemon that has no room may have said so, and closed, before it was asked: its reason is there to be
  // read.
  if (!sent.ok() && sent.code() != Code::kDaemonLost) return fail(sent);
  MUSTER_FAULT_POINT("attach.hello_sent");
  std::vector<std::byte> buffer(shm::kMessageBytesMax);
  MUSTER_ASSIGN_OR_RETURN(shm::Message answer, shm::receive_message(socket, buffer, deadline, clock));
  const auto bytes = std::span(buffer).first(answer.bytes);
  MUSTER_ASSIGN_OR_RETURN(const shm::Welcome welcome, welcome_of(bytes));
  return Welcomed{std::move(socket), std::move(answer), welcome};
}

// A daemon that is replaced by another in the middle of this drops the connection without a word; the next
// one answers at the same socket. The rank was not attached then: an engine that has a connection keeps it.
Result<Welcomed> knock_until(const std::string& endpoint, const shm::Hello& hello, muster::Instant deadline,
                             const muster::Clock& clock) {
  constexpr int kKnocksMax = 100;
  constexpr std::int64_t kPauseMaxMs = 100;
  std::int64_t pause_ms = 1;
  for (int knocks = 1;; ++knocks) {
    auto welcomed = knock(endpoint, hello, deadline, clock);
    if (!welcomed && welcomed.error().code() == Code::kWaitTimeout)
      return fail(
          Code::kDaemonLost,
          "the daemon at {} has not answered in time: it is stopped, or the job is not ready, or the "
          "rank is held by another process that may be leaving; look with `muster status` and `muster "
          "jobs`, or wait longer (timeout_ns)",
          endpoint);
    const bool replaced = !welcomed && is_silence(welcomed.error());
    if (!replaced || knocks == kKnocksMax || clock.now() >= deadline) return welcomed;
    const timespec pause{.tv_sec = 0, .tv_nsec = pause_ms * 1'000'000};
    nanosleep(&pause, nullptr);
    pause_ms = std::min(2 * pause_ms, kPauseMaxMs);
  }
}

Result<muster_session::Connection> attach(const muster::bootstrap::Identity& identity,
                                          muster::Nanos timeout) {
  const muster::SteadyClock clock;
  const muster::Instant deadline = muster::later(clock.now(), timeout);
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
  muster_session::Connection connection{std::move(socket),
                                        std::move(answer.descriptors[2]),
                                        std::move(submission),
                                        std::move(completion),
                                        welcome,
                                        timeout,
                                        {},
                                        {}};
  if (!direct) return connection;
  MUSTER_RETURN_IF_ERROR(shm::check_memory(answer.descriptors[3], welcome.direct_bytes));
  MUSTER_RETURN_IF_ERROR(shm::check_memory(answer.descriptors[4], welcome.group_bytes));
  MUSTER_ASSIGN_OR_RETURN(connection.direct, shm::Mapping::map(answer.descriptors[3], welcome.direct_bytes,
                                                               shm::Access::kReadWrite));
  MUSTER_FAULT_POINT("attach.direct_mapped");
  MUSTER_ASSIGN_OR_RETURN(connection.groups,
                          shm::Mapping::map(answer.descriptors[4], welcome.group_bytes, shm::Access::kRead));
  MUSTER_FAULT_POINT("attach.groups_mapped");
  return connection;
}

// Whether `muster run` has started this rank, and has told itself what is misspelt: by hand two variables are
// enough, and it sets all of them.
bool is_of_muster_run(const muster::bootstrap::Identity& identity) {
  return identity.launcher == "muster" && identity.local_size >= 0;
}

// Which variables of the environment look like ours and are none: the reason, perhaps, why this did not work.
// Where it did they are told too, once and by one rank, for what was meant has no effect.
Status with_misspelt(Status status, const muster::bootstrap::Identity& identity) {
  static std::atomic<bool> told = false;
  std::string all;
  for (const std::string& each : muster::misspelt_variables(muster::process_variables()))
    all += (all.empty() ? "" : "; ") + each;
  if (all.empty()) return status;
  all = muster::printable(all, muster::Lines::kOne);
  if (!status.ok()) return Status(status.code(), status.message() + "; " + all);
  if (identity.rank == 0 && !is_of_muster_run(identity) && !told.exchange(true))
    std::fprintf(stderr, "libmuster: warning: %s\n", all.c_str());
  return status;
}

// An older program has a shorter struct: what it does not know keeps the default.
template<class Options>
Status read_options(const Options* given, Options* options) {
  if (given == nullptr) return {};
  if (given->size < sizeof given->size || given->size > sizeof(Options))
    return failure(Code::kBadArgument, "options of {} bytes; this library knows up to {}", given->size,
                   sizeof(Options));
  std::memcpy(options, given, given->size);
  return {};
}

Status open_as(const muster::bootstrap::Identity& identity, muster::Nanos timeout, muster_session** session) {
  MUSTER_ASSIGN_OR_RETURN(auto connection, attach(identity, timeout));
  MUSTER_ASSIGN_OR_RETURN(auto made, muster_session::create(std::move(connection)));
  MUSTER_FAULT_POINT("attach.opened");
  *session = made.release();
  return {};
}

}  // namespace

extern "C" {

muster_status_t muster_open(const muster_open_options* given, muster_session** session) {
  if (session == nullptr) return muster::client::report(Code::kBadArgument, "session must not be NULL");
  *session = nullptr;
  return muster::client::guarded([&]() -> Status {
    muster_open_options options = MUSTER_OPEN_OPTIONS_INIT;
    MUSTER_RETURN_IF_ERROR(read_options(given, &options));
    if (options.flags != 0) return failure(Code::kBadArgument, "flags {} must be 0", options.flags);
    if (options.timeout_ns < 0)
      return failure(Code::kBadArgument, "timeout_ns {} is negative; 0 is {} s", options.timeout_ns,
                     std::chrono::duration_cast<std::chrono::seconds>(kDefaultTimeout).count());
    const muster::Nanos timeout =
        options.timeout_ns > 0 ? muster::Nanos(options.timeout_ns) : kDefaultTimeout;
    MUSTER_RETURN_IF_ERROR(muster::client::count_forks());
    const auto identity = identity_of(options);
    if (!identity) return with_misspelt(identity.error(), {});
    return with_misspelt(open_as(*identity, timeout, session), *identity);
  });
}

muster_status_t muster_close(muster_session* session) {
  if (session == nullptr) return MUSTER_OK;
  return muster::client::guarded([&]() -> Status {
    const std::unique_ptr<muster_session> owner(session);
    owner->goodbye();
    return {};
  });
}
}
