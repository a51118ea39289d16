// Measurements of Muster that need one rank only: submitting work, attaching, making jobs and groups.
#pragma once

#include "tests/bench/muster_rank.hpp"

namespace muster::bench {

// The ranks of the largest job that it makes. The daemon must allow as many sessions.
constexpr int kAloneRanksMax = 64;

// Measures the operations of kAlone that `cells` names.
void measure_alone(MusterRank& rank, const Cells& cells);

}  // namespace muster::bench
