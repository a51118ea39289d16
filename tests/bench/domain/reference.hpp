// The reference of a stack: the formulas in double precision, by one thread, of the whole field.
#pragma once

#include "tests/bench/domain/stack.hpp"

#include <vector>

namespace muster::bench::domain {

// Owns    its arrays.
// Thread  a value; any.
// Bound   the field.
// Fails   never.
struct StackResult {
  double mean = 0;
  std::vector<double> y, dx;
  std::vector<double> parameter_gradients;  // of all layers, end to end
};
StackResult reference_of(const Stack& stack);

}  // namespace muster::bench::domain
