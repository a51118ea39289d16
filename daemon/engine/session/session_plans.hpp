// SessionPlans: the plans of one session, by handle, and how many of their starts are in flight.
#pragma once

#include "api/base/bounded.hpp"
#include "api/shm/control.hpp"
#include "daemon/engine/session/resolve.hpp"
#include "daemon/engine/session/session_buffers.hpp"
#include "scheduler/run/plan.hpp"

#include <cstdint>
#include <memory>
#include <vector>

namespace muster::engine {

// Owns    the plans, and former versions of plans whose counts were changed.
// Thread  under the engine's lock.
// Bound   plans_max, and as many former plans as have starts in flight.
// Fails   add: NO_RESOURCE. destroy: STALE, BUSY.
class SessionPlans {
 public:
  SessionPlans(std::uint32_t plans_max, SessionId owner, SessionBuffers& buffers)
      : owner_(owner), buffers_(buffers), plans_(plans_max) {}

  // `said`: the client's description, for new counts; empty for a kernel.
  Result<Handle> add(std::unique_ptr<scheduler::Plan> plan, const shm::PlanCollective& said = {});
  Status destroy(Handle handle);
  // nullptr: no such plan.
  scheduler::Plan* find(Handle handle);
  const scheduler::Plan* find(Handle handle) const { return const_cast<SessionPlans*>(this)->find(handle); }
  // How many plans name the group.
  std::size_t of(GroupId group);
  // Drops former plans that have no start in flight, and releases their buffers.
  void forget_former();

  // ---- new counts ------------------------------------------------------------------------------
  bool has_counts(Handle handle) const;
  // Makes the plan anew from its client's description and the new counts, with the same checks and errors.
  Status recount(const Scope& scope, Handle handle, std::uint64_t count, const CollectiveLists& lists);

  // ---- starts ----------------------------------------------------------------------------------
  void started(scheduler::Plan& plan);
  void ended(scheduler::Plan& plan);
  // No start is in flight any more.
  bool idle() const { return starts_in_flight_ == 0; }

 private:
  struct Record {
    std::unique_ptr<scheduler::Plan> plan;
    shm::PlanCollective said;
  };
  // A plan as it was before its counts were changed, while starts of it are in flight.
  struct Former {
    Handle handle;
    std::unique_ptr<scheduler::Plan> plan;
  };

  SessionId owner_;
  SessionBuffers& buffers_;
  SlotMap<std::unique_ptr<Record>> plans_;
  std::vector<Former> former_;
  std::uint32_t starts_in_flight_ = 0;
};

}  // namespace muster::engine
