#include "daemon/engine/job/job_plans.hpp"

#include <mutex>
#include <utility>

namespace muster::engine {

Result<Handle> JobPlans::kernel(Session& session, const muster_kernel& kernel) {
  MUSTER_ASSIGN_OR_RETURN(auto plan, resolve_kernel(session.scope(graph_.groups()), kernel));
  const std::lock_guard lock(lock_);
  return session.plans().add(std::move(plan));
}

Result<Handle> JobPlans::collective(Session& session, const shm::PlanCollective& message,
                                    const CollectiveLists& lists) {
  MUSTER_ASSIGN_OR_RETURN(auto plan, resolve_collective(session.scope(graph_.groups()), message, lists));
  const std::lock_guard lock(lock_);
  metrics_.expect(*plan->collective());
  graph_.open_lanes().expect(*plan->collective());
  return session.plans().add(std::move(plan), message);
}

// Starts that the client has pushed before this call count as in flight, so they are taken out of the ring
// first.
Status JobPlans::destroy(Session& session, Handle handle) {
  const std::lock_guard lock(lock_);
  slots_.drain_all(session.options().rank);
  if (session.intake().has_backlog())
    return failure(Code::kBusy, "starts before this call wait for room on their lane; wait for their points");
  return session.plans().destroy(handle);
}

}  // namespace muster::engine
