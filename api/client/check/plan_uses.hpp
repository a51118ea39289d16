// PlanUses: the memory that each plan of a session reads and writes.
#pragma once

#include "api/client/check/guarded_buffers.hpp"
#include "api/client/check/memory_use.hpp"
#include "api/client/check/starts_in_flight.hpp"

#include <muster/muster.h>

#include <map>
#include <memory>
#include <optional>
#include <string>

namespace muster::client {

// Owns    what each plan uses.
// Thread  the session's.
// Bound   the plans of the session.
// Fails   never.
class PlanUses {
 public:
  struct Plan {
    std::string name;
    std::shared_ptr<const MemoryUses> uses;
    bool moves = false;  // it is a collective, whose sources must stay as they are
  };

  // `buffers` outlive it.
  explicit PlanUses(const GuardedBuffers& buffers) : buffers_(buffers) {}

  void add(muster_plan plan, std::string name, MemoryUses uses, bool moves);
  void remove(muster_plan plan) { plans_.erase(plan); }
  // Null: the plan is not known.
  const Plan* find(muster_plan plan) const;
  // The start of a plan as the caller submits it; nothing, if the plan is not known.
  std::optional<StartsInFlight::Next> next_start(muster_plan plan, const muster_submit& submit) const;
  // Leaves out uses of memory that this process does not see, such as that of a device.
  std::shared_ptr<const MemoryUses> seen(MemoryUses uses) const;

 private:
  const GuardedBuffers& buffers_;
  std::map<muster_plan, Plan> plans_;
};

}  // namespace muster::client
