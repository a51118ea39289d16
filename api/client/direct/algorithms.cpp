#include "api/client/direct/algorithms.hpp"

#include <cstddef>

namespace muster::client {

DirectPlan::Body body_of(const Collective& what, const Choice& choice) {
  static constexpr DirectPlan::Body kBodies[] = {
#define MUSTER_ROW(id, name, payload) run_##name,
      MUSTER_ALGORITHMS(MUSTER_ROW)
#undef MUSTER_ROW
  };
  if (is_transfer(what.op)) return run_transfer;
  if (choice.path == Path::kEngine) return run_agreement;
  return kBodies[static_cast<std::size_t>(choice.algorithm)];
}

Outcome run_agreement(const DirectPlan& plan, DirectMemory& memory, Stages& /*stages*/, WaitPolicy& policy) {
  if (!plan.channel->begin()) return Outcome::kRefused;
  Announced& draft = plan.channel->arrivals().draft();
  draft = {};
  if (plan.pairwise) draft.say(Announced::Balance{plan.signature.balance});
  return meet(plan, memory, policy);
}

}  // namespace muster::client
