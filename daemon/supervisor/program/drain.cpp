#include "daemon/supervisor/program/drain.hpp"

#include "api/base/log.hpp"

namespace muster::supervisor {

void Drain::begin(Ranks ranks) {
  if (!jobs_.closed()) {
    MUSTER_LOG(kInfo, "supervisor", "shutting down: {} sessions are attached", table_.sessions());
    jobs_.close();
    events_.begun();
  }
  if (ranks == Ranks::kMayLeave) {
    loop_.after(times_.for_ranks, [this] { end_jobs(times_.for_engines); });
    if (has_ranks()) {
      const double seconds = std::chrono::duration<double>(times_.for_ranks).count();
      MUSTER_LOG(kInfo, "supervisor", "they have {:g} s to leave (liveness.drain_timeout)", seconds);
      return;
    }
  }
  end_jobs(RunningJobs::kEngineEndTime);
}

void Drain::check() {
  if (jobs_.closed() && !has_ranks()) end_jobs(RunningJobs::kEngineEndTime);
}

void Drain::end_jobs(Nanos time) {
  jobs_.end_all("the daemon is shutting down", time);
  if (table_.jobs().empty()) events_.ended();
}

}  // namespace muster::supervisor
