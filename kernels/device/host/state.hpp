// Pool::State: for pool.cpp, which owns it, and device.cpp, whose devices share the crew.
#pragma once

#include "kernels/device/host/crew.hpp"
#include "kernels/device/host/pool.hpp"

#include <memory>
#include <thread>
#include <vector>

namespace muster::device::host {

// Owns    the threads; the crew together with the devices, streams and events, so none of these dangles in
//         any order.
// Thread  the pool's owner.
// Bound   one thread per worker.
// Fails   never.
struct Pool::State {
  std::shared_ptr<Crew> crew;
  std::vector<std::thread> threads;
};

}  // namespace muster::device::host
