// A launch of a collective that is not launched again.
#pragma once

#include "transport/collective/communicator.hpp"

#include <span>

namespace muster::transport::test {

// `collective` and the shares of the members live until the step has ended.
inline Status launch_once(Communicator& communicator, const Collective& collective,
                          std::span<const LocalMember> members, const MatchKey& key, StepOutcome& outcome,
                          device::Priority priority = device::Priority::kNormal) {
  MUSTER_ASSIGN_OR_RETURN(const auto prepared, communicator.prepare(collective, members));
  return communicator.launch(prepared, members, key, priority, outcome);
}

}  // namespace muster::transport::test
