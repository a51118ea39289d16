// Tells the service manager how the daemon is (sd_notify(3)). Without one, nothing happens.
#pragma once

#include <functional>
#include <string>

namespace muster::supervisor {

std::function<void(const std::string&)> system_notify();

}  // namespace muster::supervisor
