#include "daemon/engine/session/process_end.hpp"

#include <cerrno>
#include <charconv>
#include <cstring>
#include <fstream>
#include <string_view>

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

namespace muster::engine {
namespace {

// PIDFD_GET_INFO of linux/pidfd.h, which headers of older systems lack.
struct PidfdInfo {
  std::uint64_t mask = 0;
  std::uint64_t cgroup = 0;
  std::uint32_t numbers[11] = {};
  std::int32_t exit_code = 0;
};
static_assert(sizeof(PidfdInfo) == 64);
constexpr unsigned long kGetInfo = _IOWR(0xff, 11, PidfdInfo);
constexpr std::uint64_t kExit = 1u << 3;

ProcessEnd end_of(int wait_status) {
  if (WIFSIGNALED(wait_status)) return {.signal = WTERMSIG(wait_status)};
  return {.status = WEXITSTATUS(wait_status)};
}

// exit_code is the 50th field behind the state, which stands behind the last ')': proc_pid_stat(5). It is 0
// also for a reader without permission. Only a reader with permission gets ENOENT for the program of a
// zombie; others get EACCES.
std::optional<ProcessEnd> of_zombie(std::int32_t pid) {
  constexpr int kFieldsToExitCode = 49;
  const std::string folder = fmt::format("/proc/{}", pid);
  std::ifstream file(folder + "/stat");
  std::string line;
  if (!std::getline(file, line)) return std::nullopt;
  const auto close = line.rfind(") ");
  if (close == std::string::npos || line.compare(close, 4, ") Z ") != 0) return std::nullopt;
  std::string_view rest = std::string_view(line).substr(close + 2);
  for (int field = 0; field < kFieldsToExitCode; ++field) {
    const auto space = rest.find(' ');
    if (space == std::string_view::npos) return std::nullopt;
    rest.remove_prefix(space + 1);
  }
  int wait_status = 0;
  if (std::from_chars(rest.data(), rest.data() + rest.size(), wait_status).ec != std::errc())
    return std::nullopt;
  char none = 0;
  const bool known = readlink((folder + "/exe").c_str(), &none, 1) < 0 && errno == ENOENT;
  return known ? std::optional(end_of(wait_status)) : std::nullopt;
}

// A zombie keeps its pid until its parent has collected the status.
bool keeps_its_number(const shm::Descriptor& pidfd) {
  return syscall(SYS_pidfd_send_signal, pidfd.get(), 0, nullptr, 0) == 0 || errno == EPERM;
}

}  // namespace

std::optional<ProcessEnd> how_ended(const shm::Descriptor& pidfd, std::int32_t pid) {
  for (int look = 0; look < 2; ++look) {  // its parent may collect it between the two questions
    PidfdInfo info{.mask = kExit};
    if (ioctl(pidfd.get(), kGetInfo, &info) == 0 && (info.mask & kExit) != 0) return end_of(info.exit_code);
    const auto end = pid > 0 ? of_zombie(pid) : std::nullopt;
    if (end && keeps_its_number(pidfd)) return end;
  }
  return std::nullopt;
}

std::string text_of(const std::optional<ProcessEnd>& end) {
  if (!end) return "ended without muster_close";
  if (end->signal != 0) return fmt::format("died of signal {} ({})", end->signal, strsignal(end->signal));
  return fmt::format("ended with status {} without muster_close", end->status);
}

}  // namespace muster::engine
