// The algorithms of the direct path, one file each. To add one: its file, its Algorithm in api/base/path.hpp
// with the rule that chooses it, and its line in the table.
#pragma once

#include "api/client/direct/operation.hpp"

namespace muster::client {

Outcome run_small(const DirectPlan& plan, DirectMemory& memory, Stages& stages, WaitPolicy& policy);
Outcome run_whole(const DirectPlan& plan, DirectMemory& memory, Stages& stages, WaitPolicy& policy);
Outcome run_reading(const DirectPlan& plan, DirectMemory& memory, Stages& stages, WaitPolicy& policy);
Outcome run_sliced(const DirectPlan& plan, DirectMemory& memory, Stages& stages, WaitPolicy& policy);
Outcome run_shared(const DirectPlan& plan, DirectMemory& memory, Stages& stages, WaitPolicy& policy);
Outcome run_faces(const DirectPlan& plan, DirectMemory& memory, Stages& stages, WaitPolicy& policy);
// SEND and RECV, which know one algorithm. kRefused: the other side will not come.
Outcome run_transfer(const DirectPlan& plan, DirectMemory& memory, Stages& stages, WaitPolicy& policy);
// The engine carries the operation out: the members only agree on it.
Outcome run_agreement(const DirectPlan& plan, DirectMemory& memory, Stages& stages, WaitPolicy& policy);

Body body_of(const Collective& what, const Choice& choice);

// Completes a plan of Algorithm::kSmall, whose other fields are set.
void prepare_small(DirectPlan& plan);

}  // namespace muster::client
