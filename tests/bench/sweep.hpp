// sweep: measures what is asked for on one rank of a contender. All ranks call it with the same cells.
#pragma once

#include "tests/bench/cells.hpp"

namespace muster::bench {

// Every rank checks each result, then times it; rank 0 prints the rows. A cell with a wrong result is left
// out and named. Returns whether all results were right. The operations of kAlone are not for this function.
bool sweep(Contender& contender, const Cells& cells);

}  // namespace muster::bench
