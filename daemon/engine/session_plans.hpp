// SessionPlans: the plans of one session, by handle, and how many of their starts are in flight.
#pragma once

#include "api/base/bounded.hpp"
#include "api/shm/control.hpp"
#include "daemon/engine/resolve.hpp"
#include "daemon/engine/session_buffers.hpp"
#include "scheduler/plan/plan.hpp"

#include <cstdint>
#include <memory>
#include <vector>

namespace muster::engine {

// Owns    the plans, and what they were before their counts were changed.
// Thread  under the engine's lock.
// Bound   plans_max, and as many former plans as have starts in flight.
// Fails   add: NO_RESOURCE. destroy: STALE, BUSY.
class SessionPlans {
 public:
  SessionPlans(std::uint32_t plans_max, SessionId owner, SessionBuffers& buffers)
      : owner_(owner), buffers_(buffers), plans_(plans_max) {}

  // `said`: how its client described it, for new counts; of a kernel nothing.
  Result<Handle> add(std::unique_ptr<scheduler::Plan> plan, const shm::PlanCollective& said = {});
  Status destroy(Handle handle);
  // nullptr: no such plan.
  scheduler::Plan* find(Handle handle);
  const scheduler::Plan* find(Handle handle) const { return const_cast<SessionPlans*>(this)->find(handle); }
  // How many name the group.
  std::size_t of(GroupId group);
  // Those that have no start in flight any more let their buffers go.
  void forget_former();

  // ---- new counts ------------------------------------------------------------------------------
  bool has_counts(Handle handle) const;
  // The plan is made anew from what its client said of it and the new counts: the same checks and errors.
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
  // What a plan was before its counts were changed, as long as starts of it are in flight.
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
