#include "api/client/check/plan_uses.hpp"

#include <utility>
#include <vector>

namespace muster::client {

void PlanUses::add(muster_plan plan, std::string name, MemoryUses uses, bool moves) {
  plans_[plan] = {std::move(name), seen(std::move(uses)), moves};
}

const PlanUses::Plan* PlanUses::find(muster_plan plan) const {
  const auto known = plans_.find(plan);
  return known == plans_.end() ? nullptr : &known->second;
}

std::optional<StartsInFlight::Next> PlanUses::next_start(muster_plan plan,
                                                         const muster_submit& submit) const {
  const Plan* const known = find(plan);
  if (known == nullptr || submit.wait_count > MUSTER_WAITS_MAX) return std::nullopt;
  return StartsInFlight::Next{known->name, known->uses, submit.lane,
                              std::vector<muster_point>(submit.waits, submit.waits + submit.wait_count),
                              known->moves};
}

std::shared_ptr<const MemoryUses> PlanUses::seen(MemoryUses uses) const {
  std::erase_if(uses, [this](const MemoryUse& use) { return !buffers_.has(use.from); });
  return std::make_shared<const MemoryUses>(std::move(uses));
}

}  // namespace muster::client
