// The service manager: how the daemon is (sd_notify(3)), and what it keeps of it (sd_pid_notify_with_fds(3),
// sd_listen_fds(3)). Without one, nothing happens.
#pragma once

#include "daemon/supervisor/descriptor_store.hpp"

#include <cstddef>
#include <vector>

namespace muster::supervisor {

Notify system_notify();
// How many descriptors the manager keeps, if it says so (systemd from 254 on); 0: unknown.
std::size_t store_room();
// Takes the descriptors that came with the start, and the variables that tell of them out of the environment:
// they are not for engines.
std::vector<Inherited> take_inherited();

}  // namespace muster::supervisor
