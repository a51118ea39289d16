// JobPlans: makes and destroys plans when clients ask.
#pragma once

#include "daemon/engine/memory/engine_lock.hpp"
#include "daemon/engine/observe/metrics.hpp"
#include "daemon/engine/session/rank_slots.hpp"
#include "daemon/engine/session/resolve.hpp"
#include "daemon/engine/session/session.hpp"
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
