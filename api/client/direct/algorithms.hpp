// The bodies of the algorithms that api/base/algorithms.hpp lists, one file each: run_NAME().
#pragma once

#include "api/client/direct/operation.hpp"

namespace muster::client {

#define MUSTER_ROW(id, name, payload) \
  Outcome run_##name(const DirectPlan& plan, DirectMemory& memory, Stages& stages, WaitPolicy& policy);
MUSTER_ALGORITHMS(MUSTER_ROW)
#undef MUSTER_ROW

// SEND and RECV, which know one algorithm. kRefused: the other side will not come.
Outcome run_transfer(const DirectPlan& plan, DirectMemory& memory, Stages& stages, WaitPolicy& policy);
// The engine carries the operation out: the members only agree on it.
Outcome run_agreement(const DirectPlan& plan, DirectMemory& memory, Stages& stages, WaitPolicy& policy);

Body body_of(const Collective& what, const Choice& choice);

// Completes a plan whose payload stands in the line of its slot (Payload::kInLine).
void prepare_small(DirectPlan& plan);
// Begins such an operation, with what this member gives in its draft. False: it is refused.
bool begin_small(const DirectPlan& plan);

}  // namespace muster::client
