// The service manager: tells it the daemon's status (sd_notify(3)), and which descriptors to keep
// (sd_pid_notify_with_fds(3), sd_listen_fds(3)). Without a manager, nothing happens.
#pragma once

#include "api/base/clock.hpp"
#include "daemon/supervisor/base/descriptor_store.hpp"

#include <cstddef>
#include <vector>

namespace muster::supervisor {

DescriptorStore::Notify system_notify();
// How many descriptors the manager keeps (systemd says so from 254 on); 0: unknown.
std::size_t store_room();
// The manager ends a daemon that says nothing for so long (WatchdogSec=); 0: it does not watch.
Nanos watchdog_time();
// Takes the descriptors that came with the start. Removes their variables from the environment: they are not
// for engines.
std::vector<DescriptorStore::Inherited> take_inherited();

}  // namespace muster::supervisor
