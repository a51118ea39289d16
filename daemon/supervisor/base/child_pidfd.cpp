#include "daemon/supervisor/base/child_pidfd.hpp"

#include <cerrno>
#include <csignal>
#include <cstring>

#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

namespace muster::supervisor {

Result<shm::Descriptor> pidfd_of_child(pid_t pid) {
  shm::Descriptor pidfd(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
  if (pidfd.valid()) return pidfd;
  const int error = errno;
  ::kill(pid, SIGKILL);
  waitpid(pid, nullptr, 0);
  return fail(Code::kNoResource, "pidfd_open: {}", std::strerror(error));
}

}  // namespace muster::supervisor
