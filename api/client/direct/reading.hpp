// All-reduce by reading: each member reduces the whole vector for itself, from everybody's source in place.
// Among two or three this moves less between cores than slices do: no line that a peer will read is written.
//
// A member whose target is its source may not write what others still read. It reduces a chunk into its own
// stage, waits until all have read that chunk, and copies it over then. If there is such a member, all count
// their chunks in phases.
#pragma once

#include "api/client/direct/payloads.hpp"

namespace muster::client {

// After all have arrived and agree.
Outcome reduce_by_reading(const DirectPlan& plan, Payloads& payloads, WaitPolicy& policy);

}  // namespace muster::client
