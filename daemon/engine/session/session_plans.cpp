#include "daemon/engine/session/session_plans.hpp"

#include "api/base/assert.hpp"
#include "api/base/words.hpp"

#include <utility>

namespace muster::engine {

Result<Handle> SessionPlans::add(std::unique_ptr<scheduler::Plan> plan, const shm::PlanCollective& said) {
  if (plans_.size() == plans_.capacity())
    return fail(Code::kNoResource, "the rank has {} plans already (limits.plans_per_rank_max); destroy some",
                plans_.size());
  buffers_.hold(*plan);
  plan->owner = owner_;
  const auto handle = plans_.insert(std::make_unique<Record>(Record{std::move(plan), said}));
  MUSTER_ASSERT(handle.has_value());
  return *handle;
}

Status SessionPlans::destroy(Handle handle) {
  auto* record = plans_.find(handle);
  if (record == nullptr) return failure(Code::kStale, "{}", unknown_handle("plan", handle.bits, "destroyed"));
  forget_former();
  std::uint32_t in_flight = (*record)->plan->starts_in_flight;
  for (const Former& former : former_)
    if (former.handle == handle) in_flight += former.plan->starts_in_flight;
  if (in_flight > 0)
    return failure(Code::kBusy, "{} starts of the plan are in flight; wait for their points", in_flight);
  buffers_.release(*(*record)->plan);
  plans_.erase(handle);
  return {};
}

scheduler::Plan* SessionPlans::find(Handle handle) {
  auto* record = plans_.find(handle);
  return record != nullptr ? (*record)->plan.get() : nullptr;
}

std::size_t SessionPlans::of(GroupId group) {
  forget_former();
  const auto names = [group](const scheduler::Plan& plan) {
    const scheduler::CollectiveWork* work = plan.collective();
    return work != nullptr && work->group == group;
  };
  std::size_t count = 0;
  plans_.for_each([&](Handle, const auto& record) { count += names(*record->plan) ? 1 : 0; });
  for (const Former& former : former_) count += names(*former.plan) ? 1 : 0;
  return count;
}

void SessionPlans::forget_former() {
  std::erase_if(former_, [&](const Former& former) {
    if (former.plan->starts_in_flight > 0) return false;
    buffers_.release(*former.plan);
    return true;
  });
}

bool SessionPlans::has_counts(Handle handle) const {
  const auto* record = plans_.find(handle);
  return record != nullptr && (*record)->plan->collective() != nullptr && !has_faces((*record)->said.op);
}

Status SessionPlans::recount(const Scope& scope, Handle handle, std::uint64_t count,
                             const CollectiveLists& lists) {
  Record& record = **plans_.find(handle);
  record.said.count = count;
  MUSTER_ASSIGN_OR_RETURN(auto plan, resolve_collective(scope, record.said, lists));
  forget_former();
  plan->owner = owner_;
  buffers_.hold(*plan);
  former_.push_back({handle, std::exchange(record.plan, std::move(plan))});
  forget_former();
  return {};
}

void SessionPlans::started(scheduler::Plan& plan) {
  ++plan.starts_in_flight;
  ++starts_in_flight_;
}

void SessionPlans::ended(scheduler::Plan& plan) {
  MUSTER_ASSERT(plan.starts_in_flight > 0);
  --plan.starts_in_flight;
  --starts_in_flight_;
}

}  // namespace muster::engine
