// sweep: measures what is asked for on one rank of a contender. All ranks call it with the same cells.
#pragma once

#include "tests/bench/cells.hpp"

namespace muster::bench {

// Each result is checked on every rank, then timed; rank 0 prints the rows. A cell with a wrong result is
// left out and named; the answer says whether all were right. What kAlone names is not for this.
bool sweep(Contender& contender, const Cells& cells);

}  // namespace muster::bench
