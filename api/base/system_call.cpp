#include "api/base/system_call.hpp"

#include <cerrno>
#include <cstring>

#include <fmt/format.h>

namespace muster {

std::string refused_call(std::string_view call, int error, std::string_view remedy) {
  // The codes EMFILE, ENFILE, ENOMEM, EAGAIN, ENOSPC and EFBIG mean a limit.
  const bool forbidden = error == EPERM || error == EACCES || error == ENOSYS;
  return fmt::format("{}: {}; {}", call, std::strerror(error),
                     forbidden
                         ? "the call is forbidden here, and no limit helps: allow it in the sandbox, the "
                           "container's seccomp profile or the security module"
                         : remedy);
}

}  // namespace muster
