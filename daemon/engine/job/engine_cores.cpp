#include "daemon/engine/job/engine_cores.hpp"

#include "api/base/log.hpp"
#include "daemon/engine/session/process_state.hpp"

#include <utility>

namespace muster::engine {

EngineCores::EngineCores(const control::JobSpec& spec, device::Pool& pool) : pool_(pool) {
  if (spec.cores == config::CoreRule::kDaemon) return;
  auto granted = cores_of_thread(0);
  if (!granted) return;
  ranks_.emplace(*std::move(granted), spec.world);
  pool_.work_with(ranks_->working(pool_.workers()));
}

// The number may be another process's by now. So it counts only if the process still runs after the look.
// One that has ended needs no core, and its departure is on its way.
void EngineCores::attached(Rank rank, std::int32_t pid, const shm::Descriptor& pidfd) {
  if (!ranks_) return;
  std::optional<CoreSet> cores;
  if (pid > 0) cores = cores_of_thread(pid);
  if (has_ended(pidfd)) return;
  const bool changed = ranks_->attached(rank, std::move(cores));
  if (changed) {
    const Status kept = keep_threads_to(ranks_->present());
    if (!kept.ok())
      MUSTER_LOG(kWarning, "engine",
                 "{}; the engine may run on other cores than its ranks: let its cgroup have theirs (cpuset), "
                 "or set node.cores: daemon",
                 kept.message());
  }
  pool_.work_with(ranks_->working(pool_.workers()));
}

void EngineCores::left(Rank rank) {
  if (ranks_) ranks_->left(rank);
}

}  // namespace muster::engine
