// What Muster does that needs one rank only: handing work over, attaching, making jobs and groups.
#pragma once

#include "tests/bench/muster_rank.hpp"

namespace muster::bench {

// Of the largest job that it makes: the daemon's sessions must have room for as many.
constexpr int kAloneRanksMax = 64;

// What `cells` names of kAlone.
void measure_alone(MusterRank& rank, const Cells& cells);

}  // namespace muster::bench
