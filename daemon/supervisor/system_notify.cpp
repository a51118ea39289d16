#include "daemon/supervisor/system_notify.hpp"

#include <cstdlib>

#include <systemd/sd-daemon.h>

namespace muster::supervisor {

std::function<void(const std::string&)> system_notify() {
  if (std::getenv("NOTIFY_SOCKET") == nullptr) return {};
  // A manager that does not listen is no reason to stop: its own timeouts decide.
  return [](const std::string& line) { static_cast<void>(sd_notify(0, line.c_str())); };
}

}  // namespace muster::supervisor
