#include "daemon/supervisor/base/system_notify.hpp"

#include <chrono>
#include <cstdint>
#include <cstdlib>

#include <fcntl.h>
#include <systemd/sd-daemon.h>
#include <unistd.h>

namespace muster::supervisor {

DescriptorStore::Notify system_notify() {
  if (std::getenv("NOTIFY_SOCKET") == nullptr) return {};
  return [](const std::string& text, std::span<const int> descriptors) {
    return sd_pid_notify_with_fds(0, 0, text.c_str(), descriptors.data(),
                                  static_cast<unsigned>(descriptors.size())) > 0;
  };
}

std::size_t store_room() {
  const char* text = std::getenv("FDSTORE");
  return text == nullptr ? 0 : std::strtoull(text, nullptr, 10);
}

Nanos watchdog_time() {
  std::uint64_t microseconds = 0;
  return sd_watchdog_enabled(0, &microseconds) > 0 ? std::chrono::microseconds(microseconds) : Nanos(0);
}

std::vector<DescriptorStore::Inherited> take_inherited() {
  std::vector<DescriptorStore::Inherited> inherited;
  int number = SD_LISTEN_FDS_START;
  for (const std::string& name : inherited_names(std::getenv("LISTEN_PID"), std::getenv("LISTEN_FDS"),
                                                 std::getenv("LISTEN_FDNAMES"), getpid())) {
    fcntl(number, F_SETFD, FD_CLOEXEC);
    inherited.push_back({name, shm::Descriptor(number++)});
  }
  for (const char* variable : {"LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES"}) unsetenv(variable);
  return inherited;
}

}  // namespace muster::supervisor
