#include "api/client/direct/algorithms.hpp"

#include <array>
#include <cstddef>

namespace muster::client {

Body body_of(const Collective& what, const Choice& choice) {
  static constexpr std::array<Body, kAlgorithms> kBodies = {
      run_small,    // kSmall
      run_whole,    // kWhole
      run_reading,  // kRead
      run_shared,   // kShared
      run_sliced,   // kSliced
      run_faces,    // kFaces
  };
  if (is_transfer(what.op)) return run_transfer;
  if (choice.path == Path::kEngine) return run_agreement;
  return kBodies[static_cast<std::size_t>(choice.algorithm)];
}

Outcome run_agreement(const DirectPlan& plan, DirectMemory& memory, Stages& /*stages*/, WaitPolicy& policy) {
  if (!plan.channel->begin()) return Outcome::kRefused;
  Announced& draft = plan.channel->arrivals().draft();
  draft = {};
  if (plan.pairwise) draft.say(SaidBalance{plan.signature.balance});
  return meet(plan, memory, policy);
}

}  // namespace muster::client
