#include "daemon/cli/pause.hpp"

#include <csignal>
#include <ctime>

namespace muster::cli {

bool pause(double seconds) {
  sigset_t stop;
  sigemptyset(&stop);
  sigaddset(&stop, SIGINT);
  sigaddset(&stop, SIGTERM);
  sigprocmask(SIG_BLOCK, &stop, nullptr);
  timespec time{};
  time.tv_sec = static_cast<time_t>(seconds);
  time.tv_nsec = static_cast<long>((seconds - static_cast<double>(time.tv_sec)) * 1e9);
  return sigtimedwait(&stop, nullptr, &time) > 0;
}

}  // namespace muster::cli
