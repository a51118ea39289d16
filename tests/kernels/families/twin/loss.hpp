// Cross-entropy in double, row by row. A target of -1 is ignored; another that is no column gives NaN.
#pragma once

#include <vector>

namespace muster::kernels::twin {

struct CrossEntropy {
  std::vector<double> loss, lse;
};
// Targets as whole numbers in doubles, one for each row.
CrossEntropy cross_entropy(const std::vector<double>& logits, const std::vector<double>& targets);
std::vector<double> cross_entropy_backward(const std::vector<double>& logits,
                                           const std::vector<double>& targets, double scale);

}  // namespace muster::kernels::twin
