// The bodies of the algorithms that api/base/collective/algorithms.hpp lists, one file each: run_NAME().
#pragma once

#include "api/client/direct/operation.hpp"

namespace muster::client {

#define MUSTER_ROW(id, name, payload) \
  Outcome run_##name(const DirectPlan& plan, DirectMemory& memory, Stages& stages, WaitPolicy& policy);
MUSTER_ALGORITHMS(MUSTER_ROW)
#undef MUSTER_ROW

// SEND and RECV, which have one algorithm only. kRefused: the epoch has ended, or the partner will not come.
Outcome run_transfer(const DirectPlan& plan, DirectMemory& memory, Stages& stages, WaitPolicy& policy);
// The engine carries the operation out: the members only agree on it.
Outcome run_agreement(const DirectPlan& plan, DirectMemory& memory, Stages& stages, WaitPolicy& policy);

DirectPlan::Body body_of(const Collective& what, const Choice& choice);

// Completes a plan whose payload travels in the slot's header (AlgorithmRow::Payload::kInLine).
void prepare_small(DirectPlan& plan);
// Begins such an operation, and copies this member's payload into the draft. False: no operation may begin.
bool begin_small(const DirectPlan& plan);

}  // namespace muster::client
