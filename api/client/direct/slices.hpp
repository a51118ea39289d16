// Reducing by slices: each member reduces its slice of a chunk of the vector, reading all sources in place,
// into its stage; once all have, each collects the chunk from all stages. So every source is read once and
// every result written once by its owner, and between them lies one meeting per chunk.
//
// The stage has two halves. When a member has seen all others done with the reduction of chunk c + 1, all of
// them have collected chunk c (they do it before), so the half of c may be filled with c + 2.
#pragma once

#include "api/client/direct/payloads.hpp"

namespace muster::client {

// After all have arrived and agree. ALL_REDUCE; REDUCE, where only the root collects.
Outcome reduce_sliced(const DirectPlan& plan, Payloads& payloads, WaitPolicy& policy);

}  // namespace muster::client
