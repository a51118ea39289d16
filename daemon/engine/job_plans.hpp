// JobPlans: makes and destroys plans when clients ask.
#pragma once

#include "daemon/engine/engine_lock.hpp"
#include "daemon/engine/metrics.hpp"
#include "daemon/engine/rank_slots.hpp"
#include "daemon/engine/resolve.hpp"
#include "daemon/engine/session.hpp"
#include "scheduler/run/graph.hpp"

#include <muster/muster.h>

namespace muster::engine {

// Owns    nothing: a session has its plans.
// Thread  the conductor; takes the engine's lock.
// Bound   plans_max of a session.
// Fails   kernel, collective: as resolve_*, kNoResource. destroy: kStale, kBusy.
class JobPlans {
 public:
  JobPlans(EngineLock& lock, scheduler::Graph& graph, RankSlots& slots, Metrics& metrics)
      : lock_(lock), graph_(graph), slots_(slots), metrics_(metrics) {}

  Result<Handle> kernel(Session& session, const muster_kernel& kernel);
  Result<Handle> collective(Session& session, const shm::PlanCollective& message,
                            const CollectiveLists& lists);
  Status destroy(Session& session, Handle handle);

 private:
  EngineLock& lock_;
  scheduler::Graph& graph_;
  RankSlots& slots_;
  Metrics& metrics_;
};

}  // namespace muster::engine
