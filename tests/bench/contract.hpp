// The promises (targets of tests/bench/README.md), compared with the results of a run.
#pragma once

#include "tests/bench/report.hpp"

#include <string>
#include <vector>

namespace muster::bench {

// One bound of a target: over all cells to which it applies.
struct Promise {
  std::string what;
  std::string bound;
  std::size_t cells = 0;  // measured ones to which it applies; a run without any gives no verdict on it
  std::size_t kept = 0;
  double worst = 0.0;
  double best = 0.0;
  std::string worst_cell;
};
std::vector<Promise> promises_of(const Report& report);
// A line each; empty if nothing of it was measured.
std::string contract_text(const Report& report);

}  // namespace muster::bench
