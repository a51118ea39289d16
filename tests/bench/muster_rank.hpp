// One rank of Muster's side: opened through the environment that `muster run` gives it.
#pragma once

#include "tests/bench/contender.hpp"

namespace muster::bench {

// Measures all of `cells`; a rank that is alone in its job also the cost of a submission and of an empty
// kernel.
int run_muster_rank(const Cells& cells);

}  // namespace muster::bench
