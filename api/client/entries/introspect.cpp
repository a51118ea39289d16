// Counters and traces of the C API.
#include "api/base/fault_point.hpp"
#include "api/base/named_path.hpp"
#include "api/client/session/session.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

using muster::Code;
using muster::failure;
using muster::Status;
using muster::client::with_session;
namespace shm = muster::shm;

namespace {

// Writes beside the target and renames, so that a full disk leaves no half of a file under the name. A target
// that is no regular file (a device, a pipe, a link) is kept and written in place.
Status write_file(const std::string& path, std::span<const std::byte> bytes) {
  struct stat facts {};
  const bool in_place = ::lstat(path.c_str(), &facts) == 0 && !S_ISREG(facts.st_mode);
  const std::string name = in_place ? path : path + ".partial";
  const int how = in_place ? O_TRUNC : O_CREAT | O_EXCL | O_NOFOLLOW;
  if (!in_place) ::unlink(name.c_str());  // left by a process that was killed here
  shm::Descriptor file(::open(name.c_str(), O_WRONLY | O_CLOEXEC | how, 0644));
  if (!file.valid()) {
    const int error = errno;
    const std::string fault = muster::fault_of_new_file(path);
    return failure(Code::kNoResource, "{}", fault.empty() ? path + ": " + std::strerror(error) : fault);
  }
  const auto failed = [&] {
    const int error = errno;
    if (!in_place) ::unlink(name.c_str());
    return failure(Code::kNoResource, "{}: {}", path, std::strerror(error));
  };
  std::size_t written = 0;
  while (written < bytes.size()) {
    const ssize_t n = ::write(file.get(), bytes.data() + written, bytes.size() - written);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return failed();
    written += static_cast<std::size_t>(n);
  }
  // Some file systems report a full disk only here.
  if (::close(file.release()) != 0) return failed();
  if (!in_place && ::rename(name.c_str(), path.c_str()) != 0) return failed();
  return {};
}

}  // namespace

extern "C" {

muster_status_t muster_counter(muster_session* session, const char* name, uint64_t* value) {
  return muster::client::guarded([&]() -> Status {
    MUSTER_RETURN_IF_ERROR(
        muster::client::check_given({{"session", session}, {"name", name}, {"value", value}}));
    MUSTER_RETURN_IF_ERROR(session->in_its_process());
    if (const auto own = session->own_counter(name)) {
      *value = *own;
      return {};
    }
    const auto found = shm::CounterReader(session->page().page()).value(name);
    if (!found)
      return failure(found.error().code(), "{}, runs_completed, run_bytes_moved, run_sleeps",
                     found.error().message());
    *value = *found;
    return {};
  });
}

muster_status_t muster_trace_begin(muster_session* session) {
  return with_session(session, [&]() -> Status {
    return session->connection().tell(shm::Plain{}, shm::MessageKind::kTraceBegin);
  });
}

muster_status_t muster_trace_end(muster_session* session, const char* path) {
  return with_session(session, [&]() -> Status {
    if (path == nullptr) return failure(Code::kBadArgument, "path must not be NULL");
    shm::Descriptor memory;
    const auto grant = session->connection().ask<shm::MemoryGrant>(
        shm::Plain{}, shm::MessageKind::kTraceEnd, shm::MessageKind::kTraceGrant, {}, nullptr, &memory);
    if (!grant) return grant.error();
    MUSTER_RETURN_IF_ERROR(shm::check_memory(memory, grant->bytes));
    MUSTER_ASSIGN_OR_RETURN(const auto text,
                            shm::Mapping::map(memory, grant->bytes, shm::Mapping::Access::kRead));
    return write_file(path, {text.data(), text.size()});
  });
}
}
