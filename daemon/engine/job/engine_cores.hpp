// EngineCores: keeps the engine's threads to the cores that its ranks may use, and lets as many workers work.
#pragma once

#include "api/base/ids.hpp"
#include "api/shm/descriptor.hpp"
#include "daemon/control/job.hpp"
#include "daemon/engine/memory/rank_cores.hpp"
#include "kernels/device/pool.hpp"

#include <cstdint>
#include <optional>

namespace muster::engine {

// Owns    what it knows of the ranks' cores; not the pool, which outlives it.
// Thread  the conductor's, alone.
// Bound   an attach reads one mask. It passes over this process's threads only if the union has changed.
// Fails   never: cores that cannot be set are logged, and the engine goes on where it is.
class EngineCores {
 public:
  EngineCores(const control::JobSpec& spec, device::Pool& pool);

  // `pid`: as the kernel told it, 0 if the process is not to be seen from here. `pidfd`: of that process.
  void attached(Rank rank, std::int32_t pid, const shm::Descriptor& pidfd);
  void left(Rank rank);

 private:
  device::Pool& pool_;
  std::optional<RankCores> ranks_;  // none: the engine uses all cores of the daemon
};

}  // namespace muster::engine
