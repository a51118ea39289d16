#include "daemon/engine/job/watchdog.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <string>
#include <system_error>
#include <utility>

#include <execinfo.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace muster::engine {
namespace {

constexpr int kFramesMax = 48;

bool writable() {
  pollfd entry{STDERR_FILENO, POLLOUT, 0};
  return ::poll(&entry, 1, 0) == 1 && (entry.revents & POLLOUT) != 0;
}

// Not through the log, whose lock the stuck thread may hold; and never into a full pipe, which would block.
void say(const std::string& line) {
  if (writable()) [[maybe_unused]]
    const auto written = ::write(STDERR_FILENO, line.data(), line.size());
}

// Runs on the stuck thread.
void show_stack(int) {
  const int kept = errno;  // the thread goes on, perhaps between a call and its errno
  std::array<void*, kFramesMax> frames;
  const int count = ::backtrace(frames.data(), kFramesMax);
  if (writable()) ::backtrace_symbols_fd(frames.data(), count, STDERR_FILENO);
  errno = kept;
}

double seconds(Nanos time) {
  return std::chrono::duration<double>(time).count();
}

}  // namespace

StallJudge::Finding StallJudge::look(std::uint64_t holds, Instant now) {
  const Nanos passed = std::min(now - std::exchange(last_, now), kPeriod);
  if (holds != holds_ || holds % 2 == 0) {
    holds_ = holds;
    stuck_for_ = Nanos(0);
    told_ = false;
    return Finding::kWell;
  }
  stuck_for_ += passed;
  if (stuck_for_ >= kEndAfter) return Finding::kEnd;
  if (stuck_for_ < kTellAfter || std::exchange(told_, true)) return Finding::kWell;
  return Finding::kTell;
}

Status Watchdog::start() {
  std::array<void*, 1> frame;
  ::backtrace(frame.data(), 1);  // the first call loads what later ones need
  struct sigaction action {};
  action.sa_handler = show_stack;
  action.sa_flags = SA_RESTART;
  ::sigaction(SIGUSR2, &action, nullptr);
  try {
    thread_ = std::jthread([this](const std::stop_token& stop) { run(stop); });
  } catch (const std::system_error& error) {
    return failure(Code::kNoResource,
                   "the thread that watches the engine could not be started ({}); raise the process limit "
                   "(ulimit -u, the cgroup's pids.max)",
                   error.code().message());
  }
  return {};
}

void Watchdog::run(const std::stop_token& stop) {
  StallJudge judge;
  while (!stop.stop_requested()) {
    std::this_thread::sleep_for(StallJudge::kPeriod);
    const EngineLock::Sight sight = lock_.sight();
    const StallJudge::Finding finding = judge.look(sight.holds, clock_.now());
    if (finding == StallJudge::Finding::kWell) continue;
    const bool ends = finding == StallJudge::Finding::kEnd;
    say(fmt::format("muster-engine[{}]: thread {} has been at {} for {:.1f} s and holds all others up{}\n",
                    ::getpid(), sight.thread, sight.doing, seconds(judge.stuck_for()),
                    ends ? "; the engine ends" : ""));
    if (ends) std::_Exit(kExitCode);
    ::syscall(SYS_tgkill, ::getpid(), sight.thread, SIGUSR2);
  }
}

}  // namespace muster::engine
