// Sessions of the C API: from options and environment to a session, and back.
#include "api/client/session/session.hpp"
#include "api/base/bootstrap.hpp"
#include "api/base/fault_point.hpp"
#include "api/base/utf8.hpp"
#include "api/base/variables.hpp"

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <iterator>
#include <memory>
#include <string>

using muster::Code;
using muster::fail;
using muster::failure;
using muster::Result;
using muster::Status;
using muster::client::CheckMode;
using muster::client::with_session;

namespace {

constexpr muster::Nanos kDefaultTimeout = std::chrono::seconds(60);

// The caller's options override the environment.
Result<muster::bootstrap::LaunchedRank> identity_of(const muster_open_options& options) {
  const auto lookup = muster::bootstrap::process_environment();
  MUSTER_ASSIGN_OR_RETURN(auto identity, muster::bootstrap::identify(lookup));
  if (options.rank < 0 || options.world_size < 0) MUSTER_RETURN_IF_ERROR(identity.doubt);
  if (options.rank >= 0) identity.rank = options.rank;
  if (options.world_size >= 0) identity.world_size = options.world_size;
  if (options.endpoint != nullptr) identity.endpoint = options.endpoint;
  if (options.job != nullptr) identity.job = options.job;
  if (options.mesh != nullptr) identity.mesh = options.mesh;
  if (options.token != nullptr) identity.token = options.token;
  if (options.job_key != nullptr) identity.key = options.job_key;
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

// Whether `muster run` started this rank: then it has warned of misspelt variables already. It sets all
// variables; a person who sets them by hand needs only two.
bool is_of_muster_run(const muster::bootstrap::LaunchedRank& identity) {
  return identity.launcher == "muster" && identity.local_size >= 0;
}

// Adds to a failure the variables that look like misspelt ones of ours: they may be its cause. After a
// success rank 0 warns of them once.
Status with_misspelt(Status status, const muster::bootstrap::LaunchedRank& identity) {
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

// An older program passes a shorter struct: fields that it does not have keep their defaults.
template<class Options>
Status read_options(const Options* given, Options* options) {
  if (given == nullptr) return {};
  // Sizes that releases of this interface have had. Any other would cut a field in half.
  constexpr std::size_t kSizes[] = {offsetof(Options, job_key), sizeof(Options)};
  if (std::find(std::begin(kSizes), std::end(kSizes), given->size) == std::end(kSizes))
    return failure(Code::kBadArgument,
                   "options of {} bytes; this library knows {} and {}: initialise them by "
                   "MUSTER_OPEN_OPTIONS_INIT",
                   given->size, kSizes[0], kSizes[1]);
  std::memcpy(options, given, given->size);
  return {};
}

Result<muster_session::Mode> mode_of_environment() {
  const std::string said = muster::bootstrap::process_environment()(muster::kCheckVariable).value_or("");
  if (said.empty() || said == "0") return muster_session::Mode::kPlain;
  if (said == "1") return muster_session::Mode::kCheck;
  return fail(Code::kBadArgument, "{} is '{}': set it to 1 for check mode, or to 0", muster::kCheckVariable,
              muster::printable(said, muster::Lines::kOne));
}

Status open_as(const muster::bootstrap::LaunchedRank& identity, muster::Nanos timeout,
               muster_session** session) {
  MUSTER_ASSIGN_OR_RETURN(const muster_session::Mode mode, mode_of_environment());
  MUSTER_ASSIGN_OR_RETURN(auto attachment, muster::client::attach(identity, timeout));
  MUSTER_ASSIGN_OR_RETURN(auto made, muster_session::create(std::move(attachment), mode));
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
    if (session->is_closed()) return session->in_its_process();
    const std::unique_ptr<muster_session> owner(session);
    const bool is_usable = owner->usable().ok();
    Status around;
    if (CheckMode* const check = owner->check(); is_usable && check != nullptr)
      around = check->found(check->buffers().check_around());
    if (is_usable) owner->connection().say_goodbye();
    return around;
  });
}

muster_status_t muster_session_query(muster_session* session, muster_session_info* info) {
  return with_session(session, [&]() -> Status {
    MUSTER_RETURN_IF_ERROR(muster::client::check_given({{"info", info}}));
    if (info->size != sizeof *info)
      return failure(Code::kBadArgument, "info.size is {}; initialise it by MUSTER_SESSION_INFO_INIT ({})",
                     info->size, sizeof *info);
    const muster::shm::Welcome& w = session->connection().welcome();
    info->rank = w.rank;
    info->world_size = w.world_size;
    info->local_rank = w.local_rank;
    info->local_size = w.local_size;
    info->attachments = w.attachments;
    std::memcpy(info->job, w.job, sizeof info->job);
    std::memcpy(info->mesh, w.mesh, sizeof info->mesh);
    return {};
  });
}

muster_status_t muster_interrupt(muster_session* session) {
  return static_cast<muster_status_t>(session != nullptr ? session->interrupt() : Code::kBadArgument);
}
}
